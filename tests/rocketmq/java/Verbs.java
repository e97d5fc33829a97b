import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer and a push consumer that live on, for verbs of mqadmin that run beside them (Clients).
 *
 * Arguments: name server, and how many messages are sent to the queues of topic Verbs in turn, which the group `members` consumes.
 * Prints `sent NUMBER ID UNIQUE_KEY` for each message.
 */
public class Verbs {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        SendResult[] sent = new SendResult[count];
        DefaultMQProducer producer = new DefaultMQProducer("makers");
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName("maker");
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(60_000); // of routes: 3 s are not enough on a slow machine
        producer.setRetryTimesWhenSendFailed(20); // a broker answers that it is busy on a slow machine
        producer.start();
        for (int number = 0; number < count; number++) {
            Message message = new Message("Verbs", "TagA", "key" + number, ("body " + number).getBytes(StandardCharsets.UTF_8));
            sent[number] = producer.send(message, (queues, asked, at) -> {
                for (MessageQueue queue : queues) {
                    if (queue.getQueueId() == (int) at) {
                        return queue;
                    }
                }
                throw new IllegalStateException("no queue " + at);
            }, number % 4);
        }
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("members");
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName("member");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe("Verbs", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!left.await(150, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not consumed: " + left.getCount());
        }
        Thread.sleep(1500); // its positions are stored every 500 ms
        for (int number = 0; number < count; number++) {
            System.out.println("sent " + number + " " + sent[number].getOffsetMsgId() + " " + sent[number].getMsgId());
        }
    }
}
