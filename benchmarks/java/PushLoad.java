import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * RocketMQ's push consumer with its defaults; its listener returns at once. Prints one JSON line.
 *
 * backlog NAMESRV TOPIC COUNT: what was sent before, until so many messages have come; the rate from the first one.
 * live NAMESRV TOPIC RATE THREADS BODY_BYTES WARM_SECONDS SECONDS: one process sends and consumes; the time of a message counts
 * from when it was due until its listener is called.
 */
public class PushLoad {
    private static final long QUIET_SECONDS_MAX = 60;
    private static final int TIMEOUT_MILLIS = 30_000;

    public static void main(String[] args) {
        try {
            if (args[0].equals("backlog")) {
                backlog(args);
            } else {
                live(args);
            }
            System.out.flush();
            Runtime.getRuntime().halt(0);
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // threads of the client live on
        }
    }

    private static DefaultMQPushConsumer consumer(String[] args, MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("push-load-" + System.nanoTime());
        consumer.setNamesrvAddr(args[1]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    private static void backlog(String[] args) throws Exception {
        long count = Long.parseLong(args[3]);
        AtomicLong begin = new AtomicLong();
        AtomicLong end = new AtomicLong();
        AtomicLong got = new AtomicLong();
        CountDownLatch over = new CountDownLatch(1);
        consumer(args, (messages, context) -> {
            begin.compareAndSet(0, System.nanoTime());
            if (got.addAndGet(messages.size()) >= count && end.compareAndSet(0, System.nanoTime())) {
                over.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long last = -1;
        while (!over.await(QUIET_SECONDS_MAX, TimeUnit.SECONDS)) {
            if (got.get() == last) {
                throw new IllegalStateException("only " + last + " of " + count + " messages came");
            }
            last = got.get();
        }
        System.out.printf("{\"rate\": %.1f, \"count\": %d}%n", count / ((end.get() - begin.get()) / 1e9), got.get());
    }

    private static void live(String[] args) throws Exception {
        int rate = Integer.parseInt(args[3]);
        int threadCount = Integer.parseInt(args[4]);
        int bodyBytes = Integer.parseInt(args[5]);
        int warmCount = (int) (Double.parseDouble(args[6]) * rate);
        int count = warmCount + (int) (Double.parseDouble(args[7]) * rate);
        long[] nanos = new long[count];
        AtomicInteger got = new AtomicInteger();
        DefaultMQProducer producer = new DefaultMQProducer("push-load");
        producer.setNamesrvAddr(args[1]);
        producer.setSendMsgTimeout(TIMEOUT_MILLIS);
        producer.start();
        CountDownLatch first = new CountDownLatch(1);
        consumer(args, (messages, context) -> {
            long now = System.nanoTime();
            messages.forEach(message -> {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                int number = body.getInt();
                if (number < 0) {
                    first.countDown();
                } else {
                    nanos[number] = Math.max(now - body.getLong(), 1);
                    got.incrementAndGet();
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        do { // the consumer has its queues when this comes
            producer.send(message(args[2], bodyBytes, -1, 0));
        } while (!first.await(1, TimeUnit.SECONDS));
        AtomicInteger next = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        long begin = System.nanoTime();
        for (int i = 0; i < threadCount; i++) {
            Thread thread = new Thread(() -> {
                for (int number = next.getAndIncrement(); number < count; number = next.getAndIncrement()) {
                    long due = begin + (long) (number * 1e9 / rate);
                    try {
                        TimeUnit.NANOSECONDS.sleep(due - System.nanoTime());
                        producer.send(message(args[2], bodyBytes, number, due));
                    } catch (Exception failure) {
                        throw new IllegalStateException(failure);
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        for (int last = -1; got.get() < count && last != got.get();) {
            last = got.get();
            TimeUnit.SECONDS.sleep(2);
        }
        long[] sorted = Arrays.stream(nanos, warmCount, count).filter(value -> value > 0).sorted().toArray();
        if (sorted.length < count - warmCount) {
            throw new IllegalStateException("only " + sorted.length + " of " + (count - warmCount) + " messages came");
        }
        System.out.printf("{\"rate\": %.1f, \"p50_millis\": %.3f, \"p99_millis\": %.3f}%n", count / seconds,
            sorted[sorted.length / 2] / 1e6, sorted[(int) (sorted.length * 0.99)] / 1e6);
    }

    private static Message message(String topic, int bodyBytes, int number, long due) {
        byte[] body = new byte[bodyBytes];
        ByteBuffer.wrap(body).putInt(number).putLong(due);
        return new Message(topic, "TagA", "key-" + number, body);
    }
}
