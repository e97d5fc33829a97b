import java.nio.ByteBuffer;
import java.net.InetAddress;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The four queries through RocketMQ's own clients, warmed; one JSON line with p50 and p99 of each, or with its rate.
 *
 * NAMESRV BROKER_PORT CLUSTER BROKER TOPIC SAMPLES, then COUNT or CALLERS WARM_SECONDS SECONDS. SAMPLES is a file of
 * tab-separated lines:
 * key, unique key, commit-log offset, queue id, queue offset.
 */
public class QueryLoad {
    private static final int MESSAGES_MAX = 64;
    private static final int READY_TRIES = 100;

    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        String cluster = args[2];
        String topic = args[4];
        String[][] samples = QueryTiming.samples(args[5]);
        ByteBuffer address = ByteBuffer.allocate(8);
        address.put(InetAddress.getByName("127.0.0.1").getAddress()).putInt(Integer.parseInt(args[1])).flip();

        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.start();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("benchmark_query");
        consumer.setNamesrvAddr(namesrv);
        consumer.start();

        QueryTiming.Query byKey = s -> admin.queryMessage(topic, s[0], MESSAGES_MAX, 0, Long.MAX_VALUE)
            .getMessageList().size();
        QueryTiming.Query byUniqueKey = s -> admin
            .queryMessageByUniqKey(cluster, topic, s[1], MESSAGES_MAX, 0, Long.MAX_VALUE).getMessageList().size();
        QueryTiming.Query byId = s -> {
            String id = MessageDecoder.createMessageId(ByteBuffer.allocate(16), address.duplicate(),
                Long.parseLong(s[2]));
            return admin.viewMessage(topic, id) == null ? 0 : 1;
        };
        QueryTiming.Query byOffset = s -> consumer.pull(new MessageQueue(topic, args[3], Integer.parseInt(s[3])), "*",
            Long.parseLong(s[4]), 1).getMsgFoundList().size();
        waitUntilReady(byKey, samples[0]);
        Map<String, QueryTiming.Query> queries = new LinkedHashMap<>();
        queries.put("key", byKey);
        queries.put("id", byId);
        queries.put("unique_key", byUniqueKey);
        queries.put("offset", byOffset);
        System.out.println(QueryTiming.measured(queries, samples, Arrays.copyOfRange(args, 6, args.length)));
        System.exit(0);
    }

    private static void waitUntilReady(QueryTiming.Query query, String[] sample) throws Exception {
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
}
