import org.apache.rocketmq.store.index.IndexFile;

/**
 * RocketMQ's own IndexFile, filled with keys by one thread; the keys are strings before the clock starts, their hashes
 * are not. Says how long it took in one JSON line.
 *
 * DIRECTORY SLOTS ENTRIES KEYS TOPIC
 */
public class IndexFill {
    public static void main(String[] args) throws Exception {
        int slots = Integer.parseInt(args[1]);
        int entries = Integer.parseInt(args[2]);
        int count = Integer.parseInt(args[3]);
        fill(args[0] + "/1", slots, entries, keys(args[4], count / 4));
        String[] keys = keys(args[4], count);
        long nanos = fill(args[0] + "/2", slots, entries, keys);
        System.out.printf("{\"seconds\": %.6f, \"count\": %d}%n", nanos / 1e9, count);
        System.out.flush();
        System.exit(0);
    }

    private static String[] keys(String topic, int count) {
        String[] keys = new String[count];
        for (int i = 0; i < count; i++) {
            keys[i] = topic + "#key-" + i;
        }
        return keys;
    }

    /** The name of a mapped file is a number. */
    private static long fill(String path, int slots, int entries, String[] keys) throws Exception {
        IndexFile file = new IndexFile(path, slots, entries, 0, 0);
        long storeTime = 1_700_000_000_000L;
        long start = System.nanoTime();
        for (int i = 0; i < keys.length; i++) {
            if (!file.putKey(keys[i], i * 1208L, storeTime + i / 100)) {
                throw new IllegalStateException("key " + i + " was refused");
            }
        }
        long nanos = System.nanoTime() - start;
        file.flush();
        file.shutdown();
        return nanos;
    }
}
