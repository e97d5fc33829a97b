import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.ArrayList;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * What RocketMQ's SQL filter says: the first line of stdin is a JSON list of properties, each other line an expression as JSON.
 *
 * Answers one line for each expression: REFUSED, or a letter for each properties: T, F, N (null) or X (it throws).
 */
public class FilterJudge {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        List<Map<String, String>> messages = new ArrayList<>();
        for (Object each : JSON.parseArray(in.readLine())) {
            Map<String, String> properties = new HashMap<>();
            ((Map<?, ?>) each).forEach((name, value) -> properties.put((String) name, (String) value));
            messages.add(properties);
        }
        String line;
        while ((line = in.readLine()) != null) {
            out.println(answer((String) JSON.parse(line), messages));
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String expression, List<Map<String, String>> messages) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(expression);
        } catch (MQFilterException refused) {
            return "REFUSED";
        }
        StringBuilder answers = new StringBuilder();
        for (Map<String, String> properties : messages) {
            answers.append(evaluate(compiled, properties));
        }
        return answers.toString();
    }

    private static char evaluate(Expression compiled, Map<String, String> properties) {
        try {
            Object value = compiled.evaluate(new MessageEvaluationContext(properties));
            return value == null ? 'N' : (Boolean) value ? 'T' : 'F';
        } catch (Exception failure) {
            return 'X';
        }
    }
}
