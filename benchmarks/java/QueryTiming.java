import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;

/** Queries by one caller, one sample after the other, or by many at once; warmed; for the clients of both sides. */
final class QueryTiming {
    /** One query with one line of the samples; how many messages it found. */
    interface Query {
        int ask(String[] sample) throws Exception;
    }

    private QueryTiming() {
    }

    /** The tab-separated lines of a file of samples. */
    static String[][] samples(String path) throws IOException {
        return Files.readAllLines(Path.of(path), StandardCharsets.UTF_8).stream()
            .map(line -> line.split("\t")).toArray(String[][]::new);
    }

    /** The queries by kind, as the last arguments say: COUNT of one caller, or CALLERS WARM_SECONDS SECONDS; one line of JSON. */
    static String measured(Map<String, Query> queries, String[][] samples, String... how) throws Exception {
        List<String> kinds = new ArrayList<>();
        for (Map.Entry<String, Query> each : queries.entrySet()) {
            String figures = how.length == 1 ? measure(each.getValue(), samples, Integer.parseInt(how[0]))
                : rate(each.getValue(), samples, Integer.parseInt(how[0]), Double.parseDouble(how[1]),
                    Double.parseDouble(how[2]));
            kinds.add(String.format("\"%s\": %s", each.getKey(), figures));
        }
        return kinds.stream().collect(Collectors.joining(", ", "{", "}"));
    }

    /** Queries a second of `callers` at once for some seconds, after others to warm up, as JSON. */
    private static String rate(Query query, String[][] samples, int callers, double warmSeconds, double seconds)
        throws Exception {
        query.ask(samples[0]); // what is loaded and connected for the first one takes longer than a short warm-up
        ExecutorService pool = Executors.newFixedThreadPool(callers);
        long begin = System.nanoTime() + (long) (warmSeconds * 1e9);
        long end = begin + (long) (seconds * 1e9);
        List<Future<long[]>> running = new ArrayList<>();
        for (int caller = 0; caller < callers; caller++) {
            int first = caller * samples.length / callers;
            running.add(pool.submit(() -> counts(query, samples, first, begin, end)));
        }
        long asked = 0;
        long found = 0;
        try {
            for (Future<long[]> one : running) {
                asked += one.get()[0];
                found += one.get()[1];
            }
        } catch (ExecutionException failed) {
            throw new Exception("a caller failed", failed.getCause());
        } finally {
            pool.shutdownNow();
        }
        return String.format("{\"rate\": %.2f, \"found\": %d, \"asked\": %d}", asked / seconds, found, asked);
    }

    /** How many queries one caller asks between two moments, and how many of them find something. */
    private static long[] counts(Query query, String[][] samples, int first, long begin, long end) throws Exception {
        long[] counts = new long[2];
        for (int i = first; System.nanoTime() - end < 0; i++) {
            int hits = query.ask(samples[Math.floorMod(i, samples.length)]);
            long now = System.nanoTime();
            if (now - begin >= 0 && now - end < 0) {
                counts[0]++;
                counts[1] += hits > 0 ? 1 : 0;
            }
        }
        return counts;
    }

    /** p50 and p99 of `count` queries after half as many to warm up, as JSON. */
    static String measure(Query query, String[][] samples, int count) throws Exception {
        int warm = count / 2;
        long[] nanos = new long[count];
        int found = 0;
        for (int i = -warm; i < count; i++) {
            String[] sample = samples[Math.floorMod(i, samples.length)];
            long start = System.nanoTime();
            int hits = query.ask(sample);
            if (i >= 0) {
                nanos[i] = System.nanoTime() - start;
                found += hits > 0 ? 1 : 0;
            }
        }
        Arrays.sort(nanos);
        return String.format("{\"p50_millis\": %.4f, \"p99_millis\": %.4f, \"found\": %d, \"asked\": %d}",
            nanos[count / 2] / 1e6, nanos[(int) (count * 0.99)] / 1e6, found, count);
    }
}
