import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads a whole topic with RocketMQ's pull consumer, without a proxy, and prints one JSON line.
 *
 * NAMESRV TOPIC COUNT PULL_BATCH [THREADS]: until so many messages have come. A pull at the end of a queue keeps its thread for
 * 20 s, so queues of different lengths need a thread each.
 */
public class LitePull {
    private static final int THREADS = 4;
    private static final long QUIET_NANOS_MAX = 30_000_000_000L;

    public static void main(String[] args) {
        try {
            pull(args);
            Runtime.getRuntime().halt(0);
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // threads of the client live on
        }
    }

    private static void pull(String[] args) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("lite-pull-" + System.nanoTime());
        consumer.setNamesrvAddr(args[0]);
        consumer.setAutoCommit(false);
        consumer.setPullThreadNums(args.length > 4 ? Integer.parseInt(args[4]) : THREADS);
        consumer.setPullBatchSize(Integer.parseInt(args[3]));
        long count = Long.parseLong(args[2]);
        consumer.start();
        Collection<MessageQueue> queues = List.of();
        while (queues.isEmpty()) {
            queues = consumer.fetchMessageQueues(args[1]);
        }
        consumer.assign(new ArrayList<>(queues));
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        long bytes = 0;
        long got = 0;
        long begin = System.nanoTime();
        long last = begin;
        while (got < count) {
            for (MessageExt message : consumer.poll(1000)) {
                bytes += message.getBody().length + message.getProperties().size();
                got++;
                last = System.nanoTime();
            }
            if (System.nanoTime() - last > QUIET_NANOS_MAX) {
                throw new IllegalStateException("only " + got + " of " + count + " messages came");
            }
        }
        System.out.printf("{\"rate\": %.1f, \"count\": %d, \"bytes\": %d}%n",
            got / ((System.nanoTime() - begin) / 1e9), got, bytes);
        System.out.flush();
    }
}
