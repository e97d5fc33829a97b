import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Sends one message from each namespace of the rest of the arguments: NAMESRV TOPIC NAMESPACE...; prints SENT, or REFUSED and the code. */
public class NamespaceSends {
    public static void main(String[] args) throws Exception {
        for (int i = 2; i < args.length; i++) {
            DefaultMQProducer producer = new DefaultMQProducer("reput_tenants");
            producer.setNamesrvAddr(args[0]);
            producer.setNamespace(args[i]);
            producer.setInstanceName(args[i]);
            producer.setSendMsgTimeout(60_000);
            producer.start();
            try {
                producer.send(new Message(args[1], "x".getBytes(StandardCharsets.UTF_8)));
                System.out.println("> SENT");
            } catch (MQBrokerException refused) {
                System.out.println("> REFUSED " + refused.getResponseCode());
            }
            producer.shutdown();
        }
    }
}
