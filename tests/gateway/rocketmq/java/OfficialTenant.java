import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.java.exception.TooManyRequestsException;

/**
 * The official Java client in namespaces: GATEWAY TOPIC.
 *
 * A line of stdin is a namespace, in which one message is sent; it answers SENT, or REFUSED and the name of the exception. It ends with stdin.
 */
public class OfficialTenant {
    public static void main(String[] args) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, Producer> producers = new HashMap<>();
        for (String namespace; (namespace = in.readLine()) != null; ) {
            Producer producer = producers.get(namespace);
            if (producer == null) {
                ClientConfiguration configuration = ClientConfiguration.newBuilder()
                    .setEndpoints(args[0]).enableSsl(false).setNamespace(namespace).build();
                producer = provider.newProducerBuilder().setTopics(args[1]).setClientConfiguration(configuration).build();
                producers.put(namespace, producer);
            }
            byte[] body = "x".getBytes(StandardCharsets.UTF_8);
            try {
                producer.send(provider.newMessageBuilder().setTopic(args[1]).setBody(body).build());
                System.out.println("SENT");
            } catch (TooManyRequestsException refused) {
                System.out.println("REFUSED " + refused.getClass().getSimpleName());
            }
            System.out.flush();
        }
        System.exit(0);
    }
}
