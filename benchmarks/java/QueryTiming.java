import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/** Queries one sample after the other, warmed; for the clients of both sides. */
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
