import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Producers and consumers that go on until they are told otherwise: Fleet NAMESERVER NAME POLL_MILLIS PAUSE_MILLIS
 *
 * They know the name server, and ask it for routes each POLL_MILLIS; a producer waits PAUSE_MILLIS between two messages. Topics, one
 * for each kind, and their groups ("TOPIC-readers"): Plain (each fortieth message fails once), Ordered (by key), Late (delay levels and
 * timers), Sold (transactions: committed, rolled back, committed when asked). Lines on stdout, with tabs between their words:
 *
 *     SENT KIND BODY BROKER         FAILED KIND BODY PROBLEM; it sends the message again
 *     GOT KIND BODY TIMES BROKER CLIENT
 *
 * "quiet" on stdin ends the sends (answered QUIET), "end" the rest.
 */
public class Fleet {
    interface Send { SendResult run(Message message) throws Exception; }

    static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
    static final int KEY_COUNT = 16;
    static volatile boolean isSending = true;
    static String[] args;

    static void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) line.append(line.length() == 0 ? "" : "\t").append(("" + word).replaceAll("[\t\n]+", " "));
        synchronized (OUT) { OUT.println(line); }
    }

    /** Sends messages one after the other, each until it is stored; `body` numbers them. */
    static Thread sender(String kind, Send send, int pauseFactor) {
        Thread thread = new Thread(() -> {
            for (int number = 0; isSending; number++) {
                String body = args[1] + "-" + number;
                for (boolean isStored = false; !isStored;) {
                    try {
                        SendResult sent = send.run(new Message(kind, "A", body, body.getBytes()));
                        isStored = true;
                        if (sent != null) say("SENT", kind, body, sent.getMessageQueue().getBrokerName(), sent.getSendStatus());
                        Thread.sleep(Long.parseLong(args[3]) * pauseFactor);
                    } catch (Exception problem) {
                        // A transactional producer hides the reason behind "send message Exception".
                        say("FAILED", kind, body, problem + (problem.getCause() == null ? "" : " because of " + problem.getCause()));
                        try { Thread.sleep(50); } catch (InterruptedException end) { return; }
                    }
                }
            }
        });
        thread.start();
        return thread;
    }

    static DefaultMQProducer producer(DefaultMQProducer made, String name) throws Exception {
        made.setNamesrvAddr(args[0]);
        made.setInstanceName(args[1] + name);
        made.setPollNameServerInterval(Integer.parseInt(args[2]));
        made.start();
        return made;
    }

    static DefaultMQPushConsumer consumer(String topic, int number) throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(topic + "-readers");
        made.setNamesrvAddr(args[0]);
        made.setInstanceName(args[1] + topic + number);
        made.setPollNameServerInterval(Integer.parseInt(args[2]));
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET); // the default, and the harder one
        made.setConsumeThreadMin(2);
        made.setConsumeThreadMax(2);
        made.subscribe(topic, "*");
        if (topic.equals("Ordered")) {
            made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt each : messages) got(topic, each, made);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                MessageExt message = messages.get(0);
                if (topic.equals("Plain") && message.getReconsumeTimes() == 0 && new String(message.getBody()).hashCode() % 40 == 0) {
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                got(topic, message, made);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        made.start();
        return made;
    }

    static void got(String topic, MessageExt message, DefaultMQPushConsumer consumer) {
        say("GOT", topic, new String(message.getBody()), message.getReconsumeTimes(), message.getBrokerName(), consumer.getInstanceName());
    }

    public static void main(String[] arguments) throws Exception {
        args = arguments;
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String topic : new String[] {"Plain", "Ordered", "Late", "Sold"})
            for (int number = 0; number < (topic.equals("Plain") || topic.equals("Ordered") ? 2 : 1); number++) consumers.add(consumer(topic, number));
        DefaultMQProducer plain = producer(new DefaultMQProducer(args[1] + "-producers"), "sends");
        TransactionMQProducer sold = new TransactionMQProducer("sellers");
        sold.setTransactionListener(new TransactionListener() {
            @Override public LocalTransactionState executeLocalTransaction(Message message, Object number) { return (LocalTransactionState) number; }
            @Override public LocalTransactionState checkLocalTransaction(MessageExt half) { return LocalTransactionState.COMMIT_MESSAGE; }
        });
        producer(sold, "sells");
        List<Thread> senders = new ArrayList<>();
        senders.add(sender("Plain", plain::send, 1));
        senders.add(sender("Ordered", message -> plain.send(message, new SelectMessageQueueByHash(), args[1] + keyOf(message)), 1));
        senders.add(sender("Late", message -> {
            if (keyOf(message) % 2 == 0) message.setDelayTimeLevel(1 + keyOf(message) % 3 / 2);
            else MessageAccessor.putProperty(message, "TIMER_DELAY_MS", "" + (1500 + 500 * keyOf(message)));
            return plain.send(message);
        }, 8));
        LocalTransactionState[] verdicts = {LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW};
        senders.add(sender("Sold", message -> {
            LocalTransactionState verdict = verdicts[keyOf(message) % 3];
            SendResult sent = sold.sendMessageInTransaction(message, verdict);
            return verdict == LocalTransactionState.ROLLBACK_MESSAGE ? null : sent;
        }, 16));
        BufferedReader told = new BufferedReader(new InputStreamReader(System.in));
        for (String line = told.readLine(); line != null && !line.equals("end"); line = told.readLine()) {
            isSending = false;
            for (Thread each : senders) each.join();
            say("QUIET");
        }
        for (DefaultMQPushConsumer each : consumers) each.shutdown();
        plain.shutdown();
        sold.shutdown();
        say("ENDED");
        System.exit(0);
    }

    /** The key of a message, one of KEY_COUNT: messages of a key are in the order of their numbers. */
    static int keyOf(Message message) {
        String body = new String(message.getBody());
        return Integer.parseInt(body.substring(body.lastIndexOf('-') + 1)) % KEY_COUNT;
    }
}
