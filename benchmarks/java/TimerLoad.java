import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages that wait for times which are evenly spread, and prints one JSON line.
 *
 * NAMESRV TOPIC COUNT BODY_BYTES FIRST_SECONDS SPREAD_SECONDS: the first one waits for FIRST_SECONDS after the first send.
 */
public class TimerLoad {
    private static final int SEND_TIMEOUT_MILLIS = 60_000;
    private static final int UNDER_WAY_MAX = 256;
    private static final int ROUTE_TRIES = 100;

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        byte[] body = new byte[Integer.parseInt(args[3])];
        double spreadMillis = Double.parseDouble(args[5]) * 1000;
        DefaultMQProducer producer = new DefaultMQProducer("benchmark");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        awaitRoute(producer, topic);
        Semaphore room = new Semaphore(UNDER_WAY_MAX);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        SendCallback done = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    failed.compareAndSet(null, new IllegalStateException(result.getSendStatus().name()));
                }
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                failed.compareAndSet(null, error);
                room.release();
            }
        };
        double firstMillis = System.currentTimeMillis() + Double.parseDouble(args[4]) * 1000;
        for (int i = 0; i < count && failed.get() == null; i++) {
            Message message = new Message(topic, "TagA", body);
            message.setDeliverTimeMs((long) (firstMillis + spreadMillis * i / count));
            room.acquire();
            producer.send(message, done, SEND_TIMEOUT_MILLIS);
        }
        room.acquire(UNDER_WAY_MAX);
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
        long lastMillis = (long) (firstMillis + spreadMillis);
        System.out.printf("{\"count\": %d, \"left_millis\": %d}%n", count, lastMillis - System.currentTimeMillis());
        producer.shutdown();
        System.exit(0);
    }

    private static void awaitRoute(DefaultMQProducer producer, String topic) throws Exception {
        for (int left = ROUTE_TRIES; ; left--) {
            try {
                producer.fetchPublishMessageQueues(topic);
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
