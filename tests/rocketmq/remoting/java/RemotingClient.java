import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's client over remoting, of 4.9 and of 5: RemotingClient NAMESERVER PREFIX; a line for each case, CASE, NAME, RESULT.
 * The topic of a case is PREFIX-NAME, has four queues, and is there.
 */
public class RemotingClient {
    interface Case { Object run(String topic) throws Exception; }

    static final Map<String, Case> CASES = new LinkedHashMap<>();
    // Each has clients of its own, whose limits of one and three seconds are fixed: all at once keep them waiting for longer.
    static final int CASES_AT_ONCE = 4;
    // Only what hangs reaches these.
    static final int CALL_MILLIS_MAX = 60_000, WAIT_MILLIS_MAX = 150_000, RUN_SECONDS_MAX = 500;
    static final AtomicInteger NUMBER = new AtomicInteger();
    static String nameserver;
    static String prefix;
    static String broker = "broker-a";
    static DefaultMQProducer producer;

    // --- programs

    static String fresh() { return prefix + "-" + NUMBER.incrementAndGet(); }

    static <T extends DefaultMQProducer> T sender(T made) {
        made.setNamesrvAddr(nameserver);
        made.setInstanceName(fresh());
        made.setSendMsgTimeout(CALL_MILLIS_MAX);
        made.setMqClientApiTimeout(CALL_MILLIS_MAX);
        return made;
    }

    static DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
        made.setMqClientApiTimeout(CALL_MILLIS_MAX);
        made.setNamesrvAddr(nameserver);
        made.setInstanceName(fresh());
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return made;
    }

    static DefaultLitePullConsumer lite(String group) {
        DefaultLitePullConsumer made = new DefaultLitePullConsumer(group);
        made.setMqClientApiTimeout(CALL_MILLIS_MAX);
        made.setNamesrvAddr(nameserver);
        made.setInstanceName(fresh());
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return made;
    }

    /** MessageModel has another package in 5. */
    static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods())
            if (method.getName().equals("setMessageModel"))
                method.invoke(consumer, method.getParameterTypes()[0].getField("BROADCASTING").get(null));
    }

    /** What a push consumer received. */
    static class Got extends ConcurrentLinkedQueue<MessageExt> implements MessageListenerConcurrently {
        @Override
        public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext context) {
            addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }

    static Collection<MessageExt> received(String topic, MessageSelector selector, int count) throws Exception {
        Got got = new Got();
        DefaultMQPushConsumer consumer = push(fresh());
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener(got);
        consumer.start();
        until(() -> got.size() >= count);
        consumer.shutdown();
        return got;
    }

    static Collection<MessageExt> received(String topic, int count) throws Exception { return received(topic, MessageSelector.byTag("*"), count); }

    static Set<String> bodies(Collection<MessageExt> messages) { return messages.stream().map(each -> new String(each.getBody())).collect(Collectors.toCollection(TreeSet::new)); }

    static Message message(String topic, int number) {
        Message made = new Message(topic, number % 2 == 0 ? "A" : "B", "all key" + number, ("m" + number).getBytes());
        made.putUserProperty("n", "" + number);
        return made;
    }

    static void send(String topic, int count) throws Exception { for (int i = 0; i < count; i++) producer.send(message(topic, i)); }

    /** Whether something holds at last; what cannot be asked does not hold yet. */
    static boolean until(Callable<Boolean> holds) throws InterruptedException {
        for (long end = System.currentTimeMillis() + WAIT_MILLIS_MAX; System.currentTimeMillis() < end; Thread.sleep(50)) {
            try {
                if (holds.call()) return true;
            } catch (Exception problem) {
                // asked again
            }
        }
        return false;
    }

    /** The body of a message by its id; the client takes whatever goes wrong, also a lack of time, for "no message". */
    static String viewed(String topic, String id) throws Exception {
        String[] body = new String[1];
        until(() -> (body[0] = new String(producer.viewMessage(topic, id).getBody())) != null);
        return body[0];
    }

    static long end(MessageQueue queue) throws Exception { return producer.getDefaultMQProducerImpl().maxOffset(queue); }

    // --- cases

    static {
        CASES.put("send", topic -> {
            SendResult sent = producer.send(message(topic, 1));
            return sent.getSendStatus() + " " + sent.getOffsetMsgId().length() + " " + sent.getQueueOffset() + " " + sent.getMessageQueue().getBrokerName();
        });
        CASES.put("async", topic -> {
            CompletableFuture<Object> done = new CompletableFuture<>();
            producer.send(message(topic, 1), new SendCallback() {
                @Override public void onSuccess(SendResult sent) { done.complete(sent.getSendStatus()); }
                @Override public void onException(Throwable problem) { done.complete(problem); }
            });
            return done.get(WAIT_MILLIS_MAX, TimeUnit.MILLISECONDS);
        });
        CASES.put("oneway", topic -> {
            producer.sendOneway(message(topic, 1));
            return bodies(received(topic, 1));
        });
        CASES.put("selector", topic -> {
            List<Integer> queues = new ArrayList<>();
            for (int i = 0; i < 4; i++) queues.add(producer.send(message(topic, i), (all, each, number) -> new MessageQueue(topic, broker, (Integer) number % 2), i).getMessageQueue().getQueueId());
            return queues;
        });
        CASES.put("batch", topic -> {
            SendResult sent = producer.send(IntStream.range(0, 2_000).mapToObj(i -> message(topic, i)).collect(Collectors.toList()));
            return sent.getSendStatus() + " " + sent.getOffsetMsgId().split(",").length + " " + bodies(received(topic, 2_000)).size();
        });
        CASES.put("compressed", topic -> {
            String body = "compress me ".repeat(10_000);
            producer.send(new Message(topic, body.getBytes()));
            return bodies(received(topic, 1)).contains(body);
        });
        CASES.put("big", topic -> {
            byte[] body = new byte[3_900_000];
            new java.util.Random(1).nextBytes(body);
            producer.send(new Message(topic, body));
            return Arrays.equals(received(topic, 1).iterator().next().getBody(), body);
        });
        CASES.put("properties", topic -> {
            Message sent = new Message(topic, "标签", "键1 键2", 7, "你好 😀".getBytes("UTF-8"), false);
            sent.putUserProperty("颜色", "红 😀");
            producer.send(sent);
            MessageExt got = received(topic, MessageSelector.byTag("标签"), 1).iterator().next();
            return got.getTags() + " " + got.getKeys() + " " + got.getFlag() + " " + got.getUserProperty("颜色") + " " + new String(got.getBody(), "UTF-8") + " " + got.getReconsumeTimes();
        });
        CASES.put("delay", topic -> {
            Message sent = message(topic, 1);
            sent.setDelayTimeLevel(1);
            long begin = System.currentTimeMillis();
            producer.send(sent);
            return bodies(received(topic, 1)) + " " + (System.currentTimeMillis() - begin >= 900);
        });
        CASES.put("timer", topic -> {
            Message sent = message(topic, 1);
            MessageAccessor.putProperty(sent, "TIMER_DELAY_MS", "2000");
            long begin = System.currentTimeMillis();
            producer.send(sent);
            return bodies(received(topic, 1)) + " " + (System.currentTimeMillis() - begin >= 900);
        });
        CASES.put("transaction", topic -> {
            TransactionMQProducer verdicts = sender(new TransactionMQProducer(fresh()));
            verdicts.setTransactionListener(new TransactionListener() {
                @Override public LocalTransactionState executeLocalTransaction(Message sent, Object verdict) { return (LocalTransactionState) verdict; }
                @Override public LocalTransactionState checkLocalTransaction(MessageExt half) { return LocalTransactionState.COMMIT_MESSAGE; }
            });
            verdicts.start();
            List<Object> said = new ArrayList<>();
            int number = 0;
            for (LocalTransactionState each : List.of(LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE)) said.add(verdicts.sendMessageInTransaction(message(topic, number++), each).getLocalTransactionState());
            Set<String> seen = bodies(received(topic, 1));
            verdicts.shutdown();
            return said + " " + seen;
        });
        CASES.put("members", topic -> {
            String group = fresh();
            List<DefaultMQPushConsumer> consumers = new ArrayList<>();
            Got got = new Got();
            for (int i = 0; i < 2; i++) {
                DefaultMQPushConsumer consumer = push(group);
                consumer.subscribe(topic, "*");
                consumer.registerMessageListener(got);
                consumer.start();
                consumers.add(consumer);
            }
            until(() -> consumers.stream().allMatch(each -> each.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream().filter(queue -> queue.getTopic().equals(topic)).count() == 2));
            send(topic, 20);
            until(() -> bodies(got).size() >= 20);
            consumers.forEach(DefaultMQPushConsumer::shutdown);
            return bodies(got).size();
        });
        CASES.put("orderly", topic -> {
            send(topic, 10);
            Queue<String> got = new ConcurrentLinkedQueue<>();
            AtomicInteger failed = new AtomicInteger();
            DefaultMQPushConsumer consumer = push(fresh());
            consumer.setSuspendCurrentQueueTimeMillis(100);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                String body = new String(messages.get(0).getBody());
                if (body.equals("m3") && failed.incrementAndGet() < 3) return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                got.add(messages.get(0).getQueueId() + body);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            until(() -> got.size() >= 10);
            consumer.shutdown();
            boolean isOrdered = true;
            for (String queue : List.of("0", "1", "2", "3")) {
                List<String> one = got.stream().filter(each -> each.startsWith(queue)).collect(Collectors.toList());
                isOrdered &= one.equals(one.stream().sorted().collect(Collectors.toList()));
            }
            return new TreeSet<>(got).size() + " " + isOrdered + " " + failed;
        });
        CASES.put("broadcast", topic -> {
            send(topic, 4);
            String group = fresh();
            List<DefaultMQPushConsumer> consumers = new ArrayList<>();
            Got got = new Got();
            for (int i = 0; i < 2; i++) {
                DefaultMQPushConsumer consumer = push(group);
                broadcast(consumer);
                consumer.subscribe(topic, "*");
                consumer.registerMessageListener(got);
                consumer.start();
                consumers.add(consumer);
            }
            until(() -> got.size() >= 8);
            consumers.forEach(DefaultMQPushConsumer::shutdown);
            return got.size();
        });
        CASES.put("tags", topic -> {
            send(topic, 4);
            return bodies(received(topic, MessageSelector.byTag("B || C"), 2));
        });
        CASES.put("sql", topic -> {
            send(topic, 6);
            return bodies(received(topic, MessageSelector.bySql("n > 3 and TAGS in ('A', 'B')"), 2));
        });
        CASES.put("retry", topic -> {
            send(topic, 1);
            Queue<String> got = new ConcurrentLinkedQueue<>();
            DefaultMQPushConsumer consumer = push(fresh());
            consumer.setPollNameServerInterval(1_000); // else it learns after 30 s that the topic for retries is there
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                MessageExt one = messages.get(0);
                got.add(one.getTopic().equals(topic) + ":" + new String(one.getBody()) + ":" + one.getReconsumeTimes());
                context.setDelayLevelWhenNextConsume(1);
                return one.getReconsumeTimes() == 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            until(() -> got.size() >= 2);
            consumer.shutdown();
            return new TreeSet<>(got);
        });
        CASES.put("dead letter", topic -> {
            send(topic, 1);
            String group = fresh();
            DefaultMQPushConsumer consumer = push(group);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(-1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
            consumer.start();
            MessageQueue letters = new MessageQueue("%DLQ%" + group, broker, 0);
            boolean isThere = until(() -> end(letters) == 1);
            consumer.shutdown();
            return isThere;
        });
        CASES.put("restart", topic -> {
            String group = fresh();
            List<Object> seen = new ArrayList<>();
            for (int i = 0; i < 2; i++) {
                producer.send(message(topic, i));
                Got got = new Got();
                DefaultMQPushConsumer consumer = push(group);
                consumer.subscribe(topic, "*");
                consumer.registerMessageListener(got);
                consumer.start();
                until(() -> !got.isEmpty());
                consumer.shutdown();
                seen.add(bodies(got));
            }
            return seen;
        });
        CASES.put("lite pull", topic -> {
            send(topic, 6);
            DefaultLitePullConsumer consumer = lite(fresh());
            consumer.subscribe(topic, "A");
            consumer.start();
            List<MessageExt> got = new ArrayList<>();
            until(() -> got.addAll(consumer.poll(500)) && got.size() >= 3);
            consumer.shutdown();
            return bodies(got);
        });
        CASES.put("assign", topic -> {
            MessageQueue queue = new MessageQueue(topic, broker, 1);
            for (int i = 0; i < 4; i++) producer.send(message(topic, i), queue);
            until(() -> end(queue) == 4);
            DefaultLitePullConsumer consumer = lite(fresh());
            consumer.setAutoCommit(false);
            consumer.start();
            consumer.assign(List.of(queue));
            consumer.seek(queue, 2);
            List<MessageExt> got = new ArrayList<>();
            until(() -> got.addAll(consumer.poll(500)) && got.size() >= 2);
            until(() -> { // the client only logs that it could not commit
                consumer.commitSync();
                return consumer.committed(queue) == 4;
            });
            AtomicInteger first = new AtomicInteger(-1);
            until(() -> { // Reput refuses it while it builds queues
                first.set(consumer.offsetForTimestamp(queue, 0L).intValue());
                return true;
            });
            Object said = bodies(got) + " " + consumer.committed(queue) + " " + first;
            consumer.shutdown();
            return said;
        });
        CASES.put("pull", topic -> {
            MessageQueue queue = new MessageQueue(topic, broker, 0);
            for (int i = 0; i < 4; i++) producer.send(message(topic, i), queue);
            until(() -> end(queue) == 4);
            DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(fresh());
            consumer.setMqClientApiTimeout(CALL_MILLIS_MAX);
            consumer.setConsumerPullTimeoutMillis(CALL_MILLIS_MAX);
            consumer.setNamesrvAddr(nameserver);
            consumer.setInstanceName(fresh());
            consumer.start();
            // Reput knows the end of a queue a moment before it hands out what is in it.
            until(() -> consumer.pull(queue, "*", 0, 32).getPullStatus() == PullStatus.FOUND);
            List<Object> said = new ArrayList<>();
            for (String[] each : new String[][] {{"*", "0"}, {"B", "0"}, {"Z", "0"}, {"*", "4"}, {"*", "9"}}) {
                PullResult pulled = consumer.pull(queue, each[0], Long.parseLong(each[1]), 32);
                said.add(pulled.getPullStatus() + " " + pulled.getNextBeginOffset() + (pulled.getMsgFoundList() == null ? "" : " " + pulled.getMsgFoundList().size()));
            }
            consumer.shutdown();
            return said;
        });
        CASES.put("queries", topic -> {
            SendResult sent = producer.send(message(topic, 1));
            until(() -> producer.queryMessage(topic, "key1", 8, 0, Long.MAX_VALUE).getMessageList().size() == 1);
            return viewed(topic, sent.getMsgId()) + " " + viewed(topic, sent.getOffsetMsgId());
        });
        CASES.put("namespace", topic -> {
            DefaultMQProducer other = sender(new DefaultMQProducer(fresh()));
            other.setNamespace("space");
            other.start();
            other.send(message(topic, 1));
            Got got = new Got();
            DefaultMQPushConsumer consumer = push(fresh());
            consumer.setNamespace("space");
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(got);
            consumer.start();
            until(() -> !got.isEmpty());
            consumer.shutdown();
            other.shutdown();
            return bodies(got) + " " + got.peek().getTopic().equals(topic);
        });
        CASES.put("trace", topic -> {
            DefaultMQProducer traced = sender(new DefaultMQProducer(fresh(), null, true, null));
            traced.start();
            SendResult sent = traced.send(message(topic, 1));
            boolean isFound = until(() -> !producer.queryMessage("RMQ_SYS_TRACE_TOPIC", sent.getMsgId(), 8, 0, Long.MAX_VALUE).getMessageList().isEmpty());
            traced.shutdown();
            return isFound;
        });
    }

    public static void main(String[] arguments) throws Exception {
        nameserver = arguments[0];
        prefix = arguments[1];
        producer = sender(new DefaultMQProducer(fresh()));
        producer.start();
        ExecutorService all = Executors.newFixedThreadPool(CASES_AT_ONCE);
        for (Map.Entry<String, Case> each : CASES.entrySet())
            all.submit(() -> {
                String said;
                long begin = System.currentTimeMillis();
                try {
                    said = String.valueOf(each.getValue().run(prefix + "-" + each.getKey().replace(' ', '-')));
                } catch (Throwable problem) {
                    said = "FAILED " + problem;
                }
                System.out.println("CASE\t" + each.getKey() + "\t" + said + "\t" + (System.currentTimeMillis() - begin));
            });
        all.shutdown();
        all.awaitTermination(RUN_SECONDS_MAX, TimeUnit.SECONDS);
        producer.shutdown();
        System.exit(0);
    }
}
