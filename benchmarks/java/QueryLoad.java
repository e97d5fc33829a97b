import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The four queries through RocketMQ's own clients, warmed; one JSON line with p50 and p99 of each.
 *
 * NAMESRV BROKER_PORT CLUSTER BROKER TOPIC SAMPLES COUNT. SAMPLES is a file of tab-separated lines:
 * key, unique key, commit-log offset, queue id, queue offset.
 */
public class QueryLoad {
    private static final int MESSAGES_MAX = 64;
    private static final int READY_TRIES = 100;

    /** One query with one line of the samples; how many messages it found. */
    private interface Query {
        int ask(String[] sample) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        String cluster = args[2];
        String topic = args[4];
        int count = Integer.parseInt(args[6]);
        List<String> lines = Files.readAllLines(Path.of(args[5]), StandardCharsets.UTF_8);
        String[][] samples = lines.stream().map(line -> line.split("\t")).toArray(String[][]::new);
        ByteBuffer address = ByteBuffer.allocate(8);
        address.put(InetAddress.getByName("127.0.0.1").getAddress()).putInt(Integer.parseInt(args[1])).flip();

        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.start();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("benchmark_query");
        consumer.setNamesrvAddr(namesrv);
        consumer.start();

        Query byKey = s -> admin.queryMessage(topic, s[0], MESSAGES_MAX, 0, Long.MAX_VALUE).getMessageList().size();
        Query byUniqueKey = s -> admin.queryMessageByUniqKey(cluster, topic, s[1], MESSAGES_MAX, 0, Long.MAX_VALUE)
            .getMessageList().size();
        Query byId = s -> {
            String id = MessageDecoder.createMessageId(ByteBuffer.allocate(16), address.duplicate(),
                Long.parseLong(s[2]));
            return admin.viewMessage(topic, id) == null ? 0 : 1;
        };
        Query byOffset = s -> consumer.pull(new MessageQueue(topic, args[3], Integer.parseInt(s[3])), "*",
            Long.parseLong(s[4]), 1).getMsgFoundList().size();
        waitUntilReady(byKey, samples[0]);
        System.out.printf("{\"key\": %s, \"id\": %s, \"unique_key\": %s, \"offset\": %s}%n",
            measure(byKey, samples, count), measure(byId, samples, count), measure(byUniqueKey, samples, count),
            measure(byOffset, samples, count));
        System.exit(0);
    }

    private static void waitUntilReady(Query query, String[] sample) throws Exception {
        for (int left = READY_TRIES; ; left--) {
            try {
                query.ask(sample);
                return;
            } catch (Exception notYet) {
                if (left == 0) {
                    throw notYet;
                }
                Thread.sleep(200);
            }
        }
    }

    private static String measure(Query query, String[][] samples, int count) throws Exception {
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
