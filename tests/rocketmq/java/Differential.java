import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What test_differential.py has the real clients do. Texts in files are base64, fields are separated by tabs.
 *
 * send NAMESRV BROKER FILE: topic, queue id, tags, keys, unique key, body a line; prints queue id and queue offset of each.
 * ask NAMESRV BROKER FILE: a question a line; prints for each FOUND with the messages, OFFSET with a number, or NONE.
 */
public class Differential {
    private static final String BROKER = "broker-a";
    private static final int QUEUE_COUNT = 4;
    // A broker whose machine is busy takes longer than the admin client's own 5 s.
    private static final long CALL_MILLIS_MAX = 60_000;

    public static void main(String[] args) throws Exception {
        List<String[]> lines = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(args[3]))) {
            lines.add(line.split("\t", -1));
        }
        DefaultMQAdminExt admin = new DefaultMQAdminExt(CALL_MILLIS_MAX);
        admin.setNamesrvAddr(args[1]);
        admin.start();
        if (args[0].equals("send")) {
            send(admin, args[1], args[2], lines);
        } else {
            ask(admin, args[1], lines);
        }
        admin.shutdown();
    }

    private static void send(DefaultMQAdminExt admin, String namesrv, String broker, List<String[]> lines) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("differential");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout((int) CALL_MILLIS_MAX);
        producer.start();
        Set<String> topics = new LinkedHashSet<>();
        lines.forEach(line -> topics.add(text(line[0])));
        for (String topic : topics) {
            admin.createAndUpdateTopicConfig(broker, new TopicConfig(topic, QUEUE_COUNT, QUEUE_COUNT));
            while (routes(producer, topic) < QUEUE_COUNT) {
                Thread.sleep(50);
            }
        }
        for (String[] line : lines) {
            Message message = new Message(text(line[0]), text(line[2]), text(line[3]), Base64.getDecoder().decode(line[5]));
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, text(line[4]));
            SendResult result = producer.send(message, new MessageQueue(text(line[0]), BROKER, Integer.parseInt(line[1])));
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException(result.toString());
            }
            System.out.printf("SENT\t%d\t%d%n", result.getMessageQueue().getQueueId(), result.getQueueOffset());
        }
        producer.shutdown();
    }

    private static int routes(DefaultMQProducer producer, String topic) {
        try {
            return producer.fetchPublishMessageQueues(topic).size();
        } catch (Exception notYet) {
            return 0;
        }
    }

    private static void ask(DefaultMQAdminExt admin, String namesrv, List<String[]> lines) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("differential");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout((int) CALL_MILLIS_MAX);
        consumer.start();
        for (String[] line : lines) {
            String answer;
            try {
                answer = answer(admin, consumer, line);
            } catch (Exception error) {
                // RocketMQ's way of saying that there is no such message, too.
                answer = "NONE\t" + String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
            }
            System.out.println("ANSWER\t" + answer);
        }
        consumer.shutdown();
    }

    private static String answer(DefaultMQAdminExt admin, DefaultMQPullConsumer consumer, String[] line) throws Exception {
        String topic = text(line[1]);
        switch (line[0]) {
            case "key":
                return found(admin.queryMessage(topic, text(line[2]), Integer.parseInt(line[3]),
                    Long.parseLong(line[4]), Long.parseLong(line[5])).getMessageList());
            case "id":
                return found(List.of(admin.viewMessage(topic, text(line[2]))));
            case "unique_key":
                return found(List.of(admin.queryMessage("DefaultCluster", topic, text(line[2]))));
            case "offset": {
                MessageQueue queue = new MessageQueue(topic, BROKER, Integer.parseInt(line[2]));
                PullResult result = consumer.pull(queue, "*", Long.parseLong(line[3]), 1);
                return result.getPullStatus() == PullStatus.FOUND ? found(result.getMsgFoundList()) : "NONE\t";
            }
            default: {
                MessageQueue queue = new MessageQueue(topic, BROKER, Integer.parseInt(line[2]));
                return "OFFSET\t" + consumer.searchOffset(queue, Long.parseLong(line[3]));
            }
        }
    }

    private static String found(List<MessageExt> messages) {
        List<String> places = new ArrayList<>();
        for (MessageExt message : messages) {
            places.add(String.valueOf(message.getCommitLogOffset()));
        }
        return "FOUND\t" + String.join(",", places);
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }
}
