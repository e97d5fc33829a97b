import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
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
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs many verbs of mqadmin in one JVM, beside a producer and a push consumer that live.
 *
 * Arguments: name server, broker, a file with a verb a line (words separated by tabs), and how many messages are sent first, to
 * the queues of topic Verbs in turn, which the group `members` consumes. In a line {broker} stands for the broker's address,
 * {id0}, {unique0} and so on for the ids of a message.
 *
 * Prints `sent NUMBER ID UNIQUE_KEY` for each message, and for each verb `verb MILLISECONDS LINE`, what it printed, and `end`.
 */
public class Verbs {
    /** A verb ends the JVM where it is wrong. */
    static class Exited extends SecurityException {
    }

    @SuppressWarnings("removal")
    static class NoExit extends SecurityManager {
        @Override
        public void checkExit(int status) {
            throw new Exited();
        }

        @Override
        public void checkPermission(java.security.Permission permission) {
        }
    }

    public static void main(String[] args) {
        try {
            run(args);
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // its clients have threads that would go on
        }
    }

    @SuppressWarnings("removal")
    private static void run(String[] args) throws Exception {
        String names = args[0];
        int count = Integer.parseInt(args[3]);
        DefaultMQProducer producer = new DefaultMQProducer("makers");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("members");
        List<SendResult> sent = new ArrayList<>();
        if (count > 0) {
            producer.setNamesrvAddr(names);
            producer.setInstanceName("maker");
            producer.setSendMsgTimeout(60_000);
            producer.setRetryTimesWhenSendFailed(20); // a broker answers that it is busy on a slow machine
            producer.start();
            for (int number = 0; number < count; number++) {
                Message message = new Message("Verbs", "TagA", "key" + number, ("body " + number).getBytes(StandardCharsets.UTF_8));
                sent.add(producer.send(message, (queues, asked, at) -> {
                    for (MessageQueue queue : queues) {
                        if (queue.getQueueId() == (int) at) {
                            return queue;
                        }
                    }
                    throw new IllegalStateException("no queue " + at);
                }, number % 4));
            }
            CountDownLatch left = new CountDownLatch(count);
            consumer.setNamesrvAddr(names);
            consumer.setInstanceName("member");
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setPersistConsumerOffsetInterval(500);
            consumer.subscribe("Verbs", "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> left.countDown());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            if (!left.await(60, TimeUnit.SECONDS)) {
                System.out.println("not consumed: " + left.getCount());
            }
            Thread.sleep(1500); // its positions are stored every 500 ms
            for (int number = 0; number < count; number++) {
                System.out.println("sent " + number + " " + sent.get(number).getOffsetMsgId() + " " + sent.get(number).getMsgId());
            }
        }
        System.setSecurityManager(new NoExit());
        PrintStream out = System.out, err = System.err;
        for (String line : Files.readAllLines(Path.of(args[2]))) {
            String told = line.replace("{broker}", args[1]);
            for (int number = 0; number < count; number++) {
                told = told.replace("{id" + number + "}", sent.get(number).getOffsetMsgId());
                told = told.replace("{unique" + number + "}", sent.get(number).getMsgId());
            }
            String[] words = (told + "\t-n\t" + names).split("\t");
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream printed = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(printed);
            System.setErr(printed);
            long began = System.nanoTime();
            try {
                MQAdminStartup.main0(words, null);
            } catch (Exited exited) {
                printed.println("exited");
            } catch (Throwable error) {
                error.printStackTrace();
            }
            long millis = (System.nanoTime() - began) / 1_000_000;
            printed.flush();
            System.setOut(out);
            System.setErr(err);
            out.println("verb " + millis + " " + line);
            out.println(said.toString(StandardCharsets.UTF_8));
            out.println("end");
            out.flush();
        }
        System.setSecurityManager(null);
        Runtime.getRuntime().halt(0);
    }
}
