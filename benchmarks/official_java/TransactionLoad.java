import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Sends half messages with the official client of RocketMQ 5, commits each, and prints one JSON line.
 *
 * ENDPOINT TOPIC WARM_SECONDS SECONDS THREADS BODY_BYTES; a transaction counts when its commit is answered.
 */
public class TransactionLoad {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    public static void main(String[] args) throws Exception {
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        String topic = args[1];
        double warmSeconds = Double.parseDouble(args[2]);
        double seconds = Double.parseDouble(args[3]);
        byte[] body = new byte[Integer.parseInt(args[5])];
        // Nothing is left without a verdict: a check only comes when a commit was lost on its way.
        Producer producer = PROVIDER.newProducerBuilder().setTopics(topic).setClientConfiguration(configuration)
            .setTransactionChecker(message -> TransactionResolution.COMMIT).build();
        AtomicLong committed = new AtomicLong();
        AtomicLong measured = new AtomicLong();
        AtomicReference<Exception> failed = new AtomicReference<>();
        AtomicLong begin = new AtomicLong(Long.MAX_VALUE);
        AtomicLong end = new AtomicLong(Long.MAX_VALUE);
        CountDownLatch first = new CountDownLatch(1);
        List<Thread> senders = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[4]); i++) {
            Thread sender = new Thread(() -> {
                try {
                    while (System.nanoTime() < end.get() && failed.get() == null) {
                        Message message =
                            PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).setTag("TagA").build();
                        Transaction transaction = producer.beginTransaction();
                        producer.send(message, transaction);
                        transaction.commit();
                        committed.incrementAndGet();
                        long now = System.nanoTime();
                        if (now >= begin.get() && now < end.get()) {
                            measured.incrementAndGet();
                        }
                        first.countDown();
                    }
                } catch (Exception error) {
                    failed.compareAndSet(null, error);
                    first.countDown();
                }
            });
            senders.add(sender);
            sender.start();
        }
        first.await(); // the warm-up begins when the client is connected
        long warmed = System.nanoTime() + (long) (warmSeconds * 1e9);
        end.set(warmed + (long) (seconds * 1e9));
        begin.set(warmed);
        for (Thread sender : senders) {
            sender.join();
        }
        if (failed.get() != null) {
            throw failed.get();
        }
        System.out.printf("{\"rate\": %.1f, \"count\": %d}%n", measured.get() / seconds, committed.get());
        System.out.flush();
        Runtime.getRuntime().halt(0); // an orderly end waits for the telemetry stream
    }
}
