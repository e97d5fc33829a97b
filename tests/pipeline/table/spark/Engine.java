import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/**
 * A Spark session that runs SQL, see tests/pipeline/table/spark_engine.py. Arguments are settings, NAME=VALUE. Each line of stdin is
 * {sql, into}: the rows are written as Parquet below the directory `into`, or are in the answer, a line of stdout, as {rows}; an
 * error is {error}. It ends when stdin ends.
 */
public final class Engine {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] settings) throws Exception {
        SparkSession.Builder builder = SparkSession.builder();
        for (String setting : settings) {
            int end = setting.indexOf('=');
            builder.config(setting.substring(0, end), setting.substring(end + 1));
        }
        SparkSession session = builder.getOrCreate();
        say(Map.of("rows", List.of()));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                say(Map.of("rows", run(session, JSON.readTree(line))));
            } catch (Exception error) {
                say(Map.of("error", String.valueOf(error)));
            }
        }
        session.stop();
    }

    private static List<String> run(SparkSession session, JsonNode order) {
        Dataset<Row> rows = session.sql(order.get("sql").asText());
        if (order.get("into").isNull()) {
            return rows.toJSON().collectAsList();
        }
        rows.coalesce(1).write().parquet(order.get("into").asText());
        return List.of();
    }

    private static void say(Map<String, Object> said) throws Exception {
        System.out.println(JSON.writeValueAsString(said));
        System.out.flush();
    }
}
