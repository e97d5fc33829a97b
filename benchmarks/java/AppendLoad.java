import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;

/**
 * Appends from one process, warms up first, and prints one JSON line with the rate of the measured time.
 *
 * NAMESRV TOPIC THREADS BODY_BYTES BATCH WARM_SECONDS SECONDS [LIGHT_QUEUES FIRST]; a batch of 1 is a plain synchronous
 * send. With LIGHT_QUEUES each message also goes to one of so many light queues, in turn; FIRST messages are sent before
 * the others, and `first_seconds` is their time.
 */
public class AppendLoad {
    private static final int SEND_TIMEOUT_MILLIS = 30_000;
    private static final int FIRST_SEND_TRIES = 100;

    private final DefaultMQProducer producer = new DefaultMQProducer("benchmark");
    private final String topic;
    private final byte[] body;
    private final int batch;
    private final int lightQueues;
    private final AtomicLong sequence = new AtomicLong();
    private final AtomicLong appended = new AtomicLong();
    private final AtomicLong errors = new AtomicLong();

    private AppendLoad(String namesrv, String topic, int bodyBytes, int batch, int lightQueues) {
        this.topic = topic;
        this.batch = batch;
        this.lightQueues = lightQueues;
        this.body = new byte[bodyBytes];
        new Random(1).nextBytes(body);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(SEND_TIMEOUT_MILLIS);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
    }

    public static void main(String[] args) throws Exception {
        int lightQueues = args.length > 7 ? Integer.parseInt(args[7]) : 0;
        long first = args.length > 8 ? Long.parseLong(args[8]) : 0;
        AppendLoad load = new AppendLoad(args[0], args[1], Integer.parseInt(args[3]), Integer.parseInt(args[4]), lightQueues);
        int threads = Integer.parseInt(args[2]);
        load.producer.start();
        load.waitForTopic();
        long begin = System.nanoTime();
        load.run(threads, Double.MAX_VALUE, first);
        double firstSeconds = (System.nanoTime() - begin) / 1e9;
        if (load.errors.get() > 0) {
            throw new IllegalStateException(load.errors.get() + " of the first sends failed");
        }
        load.run(threads, Double.parseDouble(args[5]), Long.MAX_VALUE);
        long warmed = load.appended.getAndSet(0);
        load.errors.set(0);
        long start = System.nanoTime();
        long[] nanos = load.run(threads, Double.parseDouble(args[6]), Long.MAX_VALUE);
        double seconds = (System.nanoTime() - start) / 1e9;
        System.out.printf("{\"rate\": %.1f, \"count\": %d, \"errors\": %d, \"p50_millis\": %.3f, \"p99_millis\": %.3f, \"first_seconds\": %.3f}%n",
            load.appended.get() / seconds, warmed + load.appended.get(), load.errors.get(), quantile(nanos, 0.5), quantile(nanos, 0.99),
            firstSeconds);
        load.producer.shutdown();
        System.exit(0);
    }

    private void waitForTopic() throws Exception {
        for (int left = FIRST_SEND_TRIES; ; left--) {
            try {
                producer.send(message());
                return;
            } catch (Exception notYet) {
                if (left == 0) {
                    throw notYet;
                }
                Thread.sleep(200);
            }
        }
    }

    private Message message() {
        long number = sequence.incrementAndGet();
        Message message = new Message(topic, "TagA", "key-" + number, body);
        if (lightQueues > 0) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_MULTI_DISPATCH, "%LMQ%t" + number % lightQueues);
        }
        return message;
    }

    private long[] run(int threads, double seconds, long count) throws InterruptedException {
        long end = seconds == Double.MAX_VALUE ? Long.MAX_VALUE : System.nanoTime() + (long) (seconds * 1e9);
        AtomicLong left = new AtomicLong(count);
        List<List<Long>> samples = new ArrayList<>();
        List<Thread> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            List<Long> own = new ArrayList<>();
            samples.add(own);
            Thread thread = new Thread(() -> send(end, left, own));
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
        long[] nanos = samples.stream().flatMap(List::stream).mapToLong(Long::longValue).toArray();
        Arrays.sort(nanos);
        return nanos;
    }

    private void send(long end, AtomicLong left, List<Long> nanos) {
        while (System.nanoTime() < end && left.getAndDecrement() > 0) {
            long start = System.nanoTime();
            try {
                SendResult result = batch == 1 ? producer.send(message()) : producer.send(messages());
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException(result.getSendStatus().name());
                }
                appended.addAndGet(batch);
                nanos.add(System.nanoTime() - start);
            } catch (Exception failure) {
                if (errors.incrementAndGet() == 1) {
                    System.err.println(failure);
                }
            }
        }
    }

    private List<Message> messages() {
        List<Message> batched = new ArrayList<>(batch);
        for (int i = 0; i < batch; i++) {
            batched.add(message());
        }
        return batched;
    }

    private static double quantile(long[] sorted, double part) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1, sorted.length * part)] / 1e6;
    }
}
