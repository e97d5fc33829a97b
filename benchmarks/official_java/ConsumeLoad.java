import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Consumes with the official client of RocketMQ 5 and prints one JSON line.
 *
 * push ENDPOINT TOPIC GROUP WARM_SECONDS SECONDS: messages that a push consumer gets and acknowledges.
 * simple ENDPOINT TOPIC GROUP WARM_SECONDS SECONDS: receive 32, acknowledge each, one after the other.
 * simple-async, likewise: acknowledge all 32 at the same time.
 * latency ENDPOINT TOPIC GROUP WARM_SECONDS SECONDS RATE: from the begin of a send to the listener of a push consumer.
 */
public class ConsumeLoad {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final int BATCH = 32;
    private static final int BODY_BYTES = 1024;
    private static final int SENDER_COUNT = 16;
    private static final long FIRST_SECONDS_MAX = 60;

    private final String topic;
    private final String group;
    private final double warmSeconds;
    private final double seconds;
    private final ClientConfiguration configuration;
    private final CountDownLatch first = new CountDownLatch(1);

    private ConsumeLoad(String[] args) {
        configuration = ClientConfiguration.newBuilder().setEndpoints(args[1]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        topic = args[2];
        group = args[3];
        warmSeconds = Double.parseDouble(args[4]);
        seconds = Double.parseDouble(args[5]);
    }

    public static void main(String[] args) throws Exception {
        ConsumeLoad load = new ConsumeLoad(args);
        switch (args[0]) {
            case "push":
                load.push();
                break;
            case "simple":
                load.simple(false);
                break;
            case "simple-async":
                load.simple(true);
                break;
            default:
                load.latency(Double.parseDouble(args[6]));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0); // an orderly end waits for a whole long poll
    }

    private void push() throws Exception {
        AtomicLong got = new AtomicLong();
        AtomicLong last = new AtomicLong();
        listen(message -> {
            last.set(System.nanoTime());
            got.incrementAndGet();
            first.countDown();
        });
        awaitFirst();
        sleep(warmSeconds);
        long before = got.get();
        long begin = System.nanoTime();
        sleep(seconds);
        long count = got.get() - before;
        // What was there may have been consumed before the time was over.
        say(count, Math.min(System.nanoTime(), last.get()) - begin, got.get());
    }

    private void simple(boolean together) throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(10)).setSubscriptionExpressions(all()).build();
        long warmUntil = 0;
        long begin = 0;
        long count = 0;
        long total = 0;
        while (true) {
            List<MessageView> messages = consumer.receive(BATCH, Duration.ofSeconds(60));
            List<CompletableFuture<Void>> acks = new ArrayList<>();
            for (MessageView message : messages) {
                if (together) {
                    acks.add(consumer.ackAsync(message));
                } else {
                    consumer.ack(message);
                }
            }
            for (CompletableFuture<Void> ack : acks) {
                ack.get();
            }
            total += messages.size();
            long now = System.nanoTime();
            if (warmUntil == 0 && !messages.isEmpty()) {
                warmUntil = now + (long) (warmSeconds * 1e9);
            } else if (begin == 0 && now >= warmUntil && warmUntil > 0) {
                begin = now;
            } else if (begin > 0) {
                count += messages.size();
                if (now - begin >= seconds * 1e9 || messages.isEmpty()) {
                    say(count, now - begin, total);
                    return;
                }
            }
        }
    }

    private void latency(double rate) throws Exception {
        List<Long> nanos = Collections.synchronizedList(new ArrayList<>());
        listen(message -> {
            long now = System.nanoTime();
            String begun = message.getProperties().get("begun");
            if (begun != null && Long.parseLong(begun) > 0) {
                nanos.add(now - Long.parseLong(begun));
            }
            first.countDown();
        });
        Producer producer = PROVIDER.newProducerBuilder().setTopics(topic).setClientConfiguration(configuration).build();
        // The first one may come before the group's first poll, and a new group may begin behind it.
        for (int second = 0; second < FIRST_SECONDS_MAX && first.getCount() > 0; second++) {
            producer.send(message(0));
            first.await(1, TimeUnit.SECONDS);
        }
        awaitFirst();
        long begin = System.nanoTime();
        long measured = begin + (long) (warmSeconds * 1e9);
        long end = measured + (long) (seconds * 1e9);
        AtomicLong sent = new AtomicLong();
        List<Thread> senders = new ArrayList<>();
        for (int i = 0; i < SENDER_COUNT; i++) {
            Thread sender = new Thread(() -> sendAtRate(producer, rate, begin, measured, end, sent));
            senders.add(sender);
            sender.start();
        }
        for (Thread sender : senders) {
            sender.join();
        }
        sleep(1);
        long[] sorted = nanos.stream().mapToLong(Long::longValue).sorted().toArray();
        System.out.printf("{\"rate\": %.1f, \"count\": %d, \"p50_millis\": %.3f, \"p99_millis\": %.3f}%n",
            sorted.length / seconds, sorted.length, quantile(sorted, 0.5), quantile(sorted, 0.99));
    }

    /** Sends what is due; a send that begins late counts from its due time, so that a slow server is not spared. */
    private void sendAtRate(Producer producer, double rate, long begin, long measured, long end, AtomicLong sent) {
        try {
            while (true) {
                long due = begin + (long) (sent.getAndIncrement() / rate * 1e9);
                if (due >= end) {
                    return;
                }
                for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                    TimeUnit.NANOSECONDS.sleep(left);
                }
                producer.send(message(due >= measured ? due : 0));
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private Message message(long begun) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(new byte[BODY_BYTES]).setTag("TagA")
            .addProperty("begun", Long.toString(begun)).build();
    }

    private interface Seen {
        void see(MessageView message);
    }

    private PushConsumer listen(Seen seen) throws Exception {
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(all()).setMessageListener(message -> {
                seen.see(message);
                return ConsumeResult.SUCCESS;
            }).build();
    }

    private java.util.Map<String, FilterExpression> all() {
        return Collections.singletonMap(topic, new FilterExpression("*", FilterExpressionType.TAG));
    }

    private void awaitFirst() throws InterruptedException {
        if (!first.await(FIRST_SECONDS_MAX, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no message came");
        }
    }

    private static void say(long count, long nanos, long total) {
        System.out.printf("{\"rate\": %.1f, \"count\": %d, \"total\": %d}%n", count / (nanos / 1e9), count, total);
    }

    private static double quantile(long[] sorted, double part) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1, sorted.length * part)] / 1e6;
    }

    private static void sleep(double seconds) throws InterruptedException {
        Thread.sleep((long) (seconds * 1000));
    }
}
