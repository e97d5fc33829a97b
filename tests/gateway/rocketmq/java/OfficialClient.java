import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

/** Sends messages by the official Java client: GATEWAY TOPIC COUNT; prints message id and body number, tab-separated. */
public class OfficialClient {
    public static void main(String[] args) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration =
            ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
                .setRequestTimeout(Duration.ofMinutes(1)).build(); // a send that takes longer is sent again
        try (Producer producer =
                 provider.newProducerBuilder().setTopics(args[1]).setClientConfiguration(configuration).build()) {
            for (int i = 0; i < Integer.parseInt(args[2]); i++) {
                MessageBuilder builder = provider.newMessageBuilder()
                    .setTopic(args[1])
                    .setTag("TagA")
                    .setKeys("key-" + i, "all")
                    .addProperty("colour", "red")
                    .setBody(("body " + i + " 你好").getBytes(StandardCharsets.UTF_8));
                if (i % 2 == 1) {
                    builder.setMessageGroup("group-" + i % 3);
                }
                Message message = builder.build();
                SendReceipt receipt = producer.send(message);
                System.out.println("RECEIPT\t" + receipt.getMessageId() + "\t" + i);
            }
        }
    }
}
