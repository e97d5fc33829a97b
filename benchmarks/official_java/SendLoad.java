import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Sends with the official client of RocketMQ 5, one message after the other in each thread, and prints one JSON line: the rate,
 * the count with those of the warm-up, and p99.
 *
 * plain ENDPOINT TOPIC WARM_SECONDS SECONDS THREADS BODY_BYTES: messages.
 * transaction, likewise: half messages, each committed; a transaction counts when its commit is answered.
 */
public class SendLoad {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    public static void main(String[] args) throws Exception {
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(args[1]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        boolean transactional = args[0].equals("transaction");
        String topic = args[2];
        double warmSeconds = Double.parseDouble(args[3]);
        double seconds = Double.parseDouble(args[4]);
        byte[] body = new byte[Integer.parseInt(args[6])];
        ProducerBuilder builder =
            PROVIDER.newProducerBuilder().setTopics(topic).setClientConfiguration(configuration);
        if (transactional) {
            // Nothing is left without a verdict: a check only comes when a commit was lost on its way.
            builder.setTransactionChecker(message -> TransactionResolution.COMMIT);
        }
        Producer producer = builder.build();
        AtomicLong done = new AtomicLong();
        List<Long> nanos = Collections.synchronizedList(new ArrayList<>());
        AtomicReference<Exception> failed = new AtomicReference<>();
        AtomicLong begin = new AtomicLong(Long.MAX_VALUE);
        AtomicLong end = new AtomicLong(Long.MAX_VALUE);
        CountDownLatch first = new CountDownLatch(1);
        List<Thread> senders = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[5]); i++) {
            Thread sender = new Thread(() -> {
                try {
                    while (System.nanoTime() < end.get() && failed.get() == null) {
                        Message message =
                            PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).setTag("TagA").build();
                        long start = System.nanoTime();
                        if (transactional) {
                            Transaction transaction = producer.beginTransaction();
                            producer.send(message, transaction);
                            transaction.commit();
                        } else {
                            producer.send(message);
                        }
                        done.incrementAndGet();
                        long now = System.nanoTime();
                        if (now >= begin.get() && now < end.get()) {
                            nanos.add(now - start);
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
        if (nanos.isEmpty()) {
            throw new IllegalStateException("nothing was answered in the measured time");
        }
        Collections.sort(nanos);
        System.out.printf("{\"rate\": %.1f, \"count\": %d, \"p99_millis\": %.3f}%n", nanos.size() / seconds, done.get(),
            nanos.get((int) (nanos.size() * 0.99)) / 1e6);
        System.out.flush();
        Runtime.getRuntime().halt(0); // an orderly end waits for the telemetry stream
    }
}
