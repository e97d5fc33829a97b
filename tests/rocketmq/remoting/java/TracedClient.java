import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a consumer with tracing on, of 4.9 and of 5: TracedClient NAMESERVER TOPIC GROUP TRACE_TOPIC.
 * It sends five messages, each of another kind; the first delivery of plain fails.
 * It prints MESSAGE, NAME, UNIQUE KEY for each, and TRACE, KEYS, BODY (as hex) for each trace message of them; tab between.
 */
public class TracedClient {
    // Only what hangs reaches these.
    static final int CALL_MILLIS_MAX = 60_000, WAIT_MILLIS_MAX = 150_000;
    static final int TRACE_COUNT_MAX = 64;

    static <T extends DefaultMQProducer> T started(T made, String nameserver, String name) throws Exception {
        made.setNamesrvAddr(nameserver);
        made.setInstanceName(name);
        made.setSendMsgTimeout(CALL_MILLIS_MAX);
        made.setMqClientApiTimeout(CALL_MILLIS_MAX);
        made.start();
        return made;
    }

    static void until(Callable<Boolean> isTrue) throws Exception {
        long end = System.currentTimeMillis() + WAIT_MILLIS_MAX;
        while (!isTrue.call()) {
            if (System.currentTimeMillis() > end) throw new IllegalStateException("it did not become true");
            Thread.sleep(100);
        }
    }

    static Message message(String topic, String name, int bytes) {
        Message made = new Message(topic, "TagA", name + "-1 " + name + "-2", new byte[bytes]);
        made.putUserProperty("name", name);
        return made;
    }

    static String told(String name, String key) {
        System.out.println("MESSAGE\t" + name + "\t" + key);
        return key;
    }

    /** The bodies of the trace messages of a key, together. */
    static String traces(DefaultMQProducer reader, String topic, String key, Set<String> shown) {
        StringBuilder all = new StringBuilder();
        try {
            for (MessageExt each : reader.queryMessage(topic, key, TRACE_COUNT_MAX, 0, Long.MAX_VALUE).getMessageList()) {
                all.append(new String(each.getBody()));
                if (shown != null && shown.add(each.getMsgId())) {
                    StringBuilder hex = new StringBuilder();
                    for (byte one : each.getBody()) hex.append(String.format("%02x", one));
                    System.out.println("TRACE\t" + each.getKeys() + "\t" + hex);
                }
            }
        } catch (Exception absent) {
            return "";
        }
        return all.toString();
    }

    /** Entries of a kind about a message. */
    static int count(DefaultMQProducer reader, String topic, String key, String kind) {
        int found = 0;
        for (String entry : traces(reader, topic, key, null).split("\u0002")) if (entry.startsWith(kind) && entry.contains(key)) found++;
        return found;
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
            System.exit(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    static void run(String[] arguments) throws Exception {
        String nameserver = arguments[0], topic = arguments[1], group = arguments[2], traceTopic = arguments[3];
        DefaultMQProducer producer = started(new DefaultMQProducer(group + "-senders", null, true, traceTopic), nameserver, group + "-1");
        TransactionMQProducer verdicts = new TransactionMQProducer(null, group + "-verdicts", null, true, traceTopic);
        verdicts.setTransactionListener(new TransactionListener() {
            @Override public LocalTransactionState executeLocalTransaction(Message sent, Object verdict) { return (LocalTransactionState) verdict; }
            @Override public LocalTransactionState checkLocalTransaction(MessageExt half) { return LocalTransactionState.COMMIT_MESSAGE; }
        });
        started(verdicts, nameserver, group + "-2");
        DefaultMQProducer reader = started(new DefaultMQProducer(group + "-readers"), nameserver, group + "-3");

        String plain = told("plain", producer.send(message(topic, "plain", 7)).getMsgId());
        Message later = message(topic, "delayed", 3);
        later.setDelayTimeLevel(1);
        String delayed = told("delayed", producer.send(later).getMsgId());
        String ordered = told("ordered", producer.send(message(topic, "ordered", 5), (queues, sent, key) -> queues.get(0), "x").getMsgId());
        TransactionSendResult committed = verdicts.sendMessageInTransaction(message(topic, "committed", 9), LocalTransactionState.COMMIT_MESSAGE);
        told("committed", committed.getMsgId());
        TransactionSendResult rolledBack = verdicts.sendMessageInTransaction(message(topic, "rolled-back", 11), LocalTransactionState.ROLLBACK_MESSAGE);
        told("rolled-back", rolledBack.getMsgId());

        Set<String> failed = new HashSet<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, null, new AllocateMessageQueueAveragely(), true, traceTopic);
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(group + "-4");
        consumer.setMqClientApiTimeout(CALL_MILLIS_MAX);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (List<MessageExt> messages, org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext context) -> {
            context.setDelayLevelWhenNextConsume(1);
            for (MessageExt each : messages)
                if ("plain".equals(each.getProperty("name")) && each.getReconsumeTimes() == 0) return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        until(() -> count(reader, traceTopic, plain, "SubAfter") >= 2);
        for (String each : List.of(delayed, ordered, committed.getMsgId()))
            until(() -> count(reader, traceTopic, each, "SubAfter") >= 1);
        for (TransactionSendResult each : List.of(committed, rolledBack))
            until(() -> count(reader, traceTopic, each.getMsgId(), "EndTransaction") >= 1);
        Set<String> shown = new HashSet<>();
        for (String each : List.of(plain, delayed, ordered, committed.getMsgId(), rolledBack.getMsgId())) traces(reader, traceTopic, each, shown);
        consumer.shutdown();
        producer.shutdown();
        verdicts.shutdown();
        reader.shutdown();
    }
}
