import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Appends from one process, warms up first, and prints one JSON line with the rate of the measured time.
 *
 * NAMESRV TOPIC THREADS BODY_BYTES BATCH WARM_SECONDS SECONDS; a batch of 1 is a plain synchronous send.
 */
public class AppendLoad {
    private static final int SEND_TIMEOUT_MILLIS = 30_000;
    private static final int FIRST_SEND_TRIES = 100;

    private final DefaultMQProducer producer = new DefaultMQProducer("benchmark");
    private final String topic;
    private final byte[] body;
    private final int batch;
    private final AtomicLong sequence = new AtomicLong();
    private final AtomicLong appended = new AtomicLong();
    private final AtomicLong errors = new AtomicLong();

    private AppendLoad(String namesrv, String topic, int bodyBytes, int batch) {
        this.topic = topic;
        this.batch = batch;
        this.body = new byte[bodyBytes];
        new Random(1).nextBytes(body);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(SEND_TIMEOUT_MILLIS);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
    }

    public static void main(String[] args) throws Exception {
        AppendLoad load = new AppendLoad(args[0], args[1], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
        int threads = Integer.parseInt(args[2]);
        load.producer.start();
        load.waitForTopic();
        load.run(threads, Double.parseDouble(args[5]));
        long warmed = load.appended.getAndSet(0);
        load.errors.set(0);
        long start = System.nanoTime();
        long[] nanos = load.run(threads, Double.parseDouble(args[6]));
        double seconds = (System.nanoTime() - start) / 1e9;
        System.out.printf("{\"rate\": %.1f, \"count\": %d, \"errors\": %d, \"p50_millis\": %.3f, \"p99_millis\": %.3f}%n",
            load.appended.get() / seconds, warmed + load.appended.get(), load.errors.get(), quantile(nanos, 0.5), quantile(nanos, 0.99));
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
        return new Message(topic, "TagA", "key-" + sequence.incrementAndGet(), body);
    }

    private long[] run(int threads, double seconds) throws InterruptedException {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        List<List<Long>> samples = new ArrayList<>();
        List<Thread> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            List<Long> own = new ArrayList<>();
            samples.add(own);
            Thread thread = new Thread(() -> send(end, own));
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

    private void send(long end, List<Long> nanos) {
        while (System.nanoTime() < end) {
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
