import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends COUNT messages with keys PREFIX0, PREFIX1, ... to TOPIC and prints one tab-separated receipt a line. */
public class SendMessages {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("reput_interop");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(60_000);
        producer.start();
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            byte[] body = (args[2] + " body " + i).getBytes(StandardCharsets.UTF_8);
            SendResult result = producer.send(new Message(args[1], "TagJ", args[2] + i, body));
            System.out.printf("%s\t%s\t%d\t%d%n", result.getMsgId(), result.getOffsetMsgId(),
                result.getMessageQueue().getQueueId(), result.getQueueOffset());
        }
        producer.shutdown();
    }
}
