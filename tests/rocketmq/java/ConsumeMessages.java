import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes a topic from its first message, filtered, and prints the keys of what comes.
 *
 * Arguments: name server, group, topic, "sql" or "tag", expression, how many messages are expected, milliseconds to wait for more.
 */
public class ConsumeMessages {
    public static void main(String[] args) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setMqClientApiTimeout(60_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        MessageSelector selector = args[3].equals("sql") ? MessageSelector.bySql(args[4]) : MessageSelector.byTag(args[4]);
        consumer.subscribe(args[2], selector);
        consumer.start();
        long expected = Long.parseLong(args[5]);
        long end = System.currentTimeMillis() + 150_000; // a hang
        long count = 0;
        while (System.currentTimeMillis() < end) {
            for (MessageExt message : consumer.poll(500)) {
                System.out.println("> " + message.getKeys() + " " + new String(message.getBody(), StandardCharsets.UTF_8));
                if (++count == expected) {
                    end = System.currentTimeMillis() + Long.parseLong(args[6]);
                }
            }
        }
        consumer.shutdown();
    }
}
