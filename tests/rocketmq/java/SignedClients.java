import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * With a key and a secret: sends COUNT messages to TOPIC and consumes them with GROUP; the first delivery of each is sent back.
 * Prints `> BODY ATTEMPT` for each second delivery, and `! WHY` when a send is refused.
 */
public class SignedClients {
    public static void main(String[] args) throws Exception {
        String namesrv = args[0], topic = args[3], group = args[4];
        int count = Integer.parseInt(args[5]);
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(args[1], args[2]));
        DefaultMQProducer producer = new DefaultMQProducer("makers", hook);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(60_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(60_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(new MessageListenerConcurrently() {
            @Override
            public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
                context.setDelayLevelWhenNextConsume(1);
                for (MessageExt message : messages) {
                    if (message.getReconsumeTimes() == 0) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                    String body = new String(message.getBody(), StandardCharsets.UTF_8);
                    if (seen.add(body)) {
                        System.out.println("> " + body + " " + message.getReconsumeTimes());
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
        });
        try {
            for (int i = 0; i < count; i++) {
                producer.send(new Message(topic, "TagJ", "key" + i, ("body " + i).getBytes(StandardCharsets.UTF_8)));
            }
        } catch (MQClientException | MQBrokerException refused) {
            Throwable why = refused.getCause() == null ? refused : refused.getCause();
            System.out.println("! " + why.getMessage().replace("\n", " "));
            producer.shutdown();
            return;
        }
        consumer.start();
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(150); seen.size() < count && System.nanoTime() < end; ) {
            Thread.sleep(100);
        }
        consumer.shutdown();
        producer.shutdown();
    }
}
