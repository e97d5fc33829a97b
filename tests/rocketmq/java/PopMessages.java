import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer that lets the server choose its queues, so it pops where the group's mode is POP. Its first try of the message with
 * the key of the last argument fails. Prints "KEYS|BODY|RECONSUME_TIMES|POP_CK" of what it consumed.
 *
 * Arguments: name server, group, topic, tags, how many messages are expected, the key.
 */
public class PopMessages {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setMqClientApiTimeout(60_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.subscribe(args[2], args[3]);
        CountDownLatch left = new CountDownLatch(Integer.parseInt(args[4]));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (args[5].equals(message.getKeys()) && message.getReconsumeTimes() == 0) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                System.out.println("> " + message.getKeys() + "|" + new String(message.getBody(), StandardCharsets.UTF_8) + "|"
                    + message.getReconsumeTimes() + "|" + message.getProperty(MessageConst.PROPERTY_POP_CK));
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await(150, TimeUnit.SECONDS);
        Thread.sleep(3000); // acknowledgements are sent behind the listener
        consumer.shutdown();
    }
}
