import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.annotation.SelectorType;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.apache.rocketmq.spring.support.DefaultRocketMQListenerContainer;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/** A program that uses rocketmq-spring: one line for each case, CASE, NAME, RESULT. */
@Configuration
@EnableAutoConfiguration
@Import({SpringProgram.Plain.class, SpringProgram.OfObjects.class, SpringProgram.Tagged.class, SpringProgram.BySql.class, SpringProgram.Orderly.class, SpringProgram.Committed.class, SpringProgram.Verdicts.class})
public class SpringProgram {
    static final Map<String, Queue<String>> GOT = new ConcurrentHashMap<>();

    static Queue<String> got(String name) { return GOT.computeIfAbsent(name, each -> new ConcurrentLinkedQueue<>()); }

    @RocketMQMessageListener(topic = "SpringPlain", consumerGroup = "spring-plain")
    static class Plain implements RocketMQListener<String> { public void onMessage(String body) { got("plain").add(body); } }

    public static class Order { public int id; public String name; }

    @RocketMQMessageListener(topic = "SpringObject", consumerGroup = "spring-object")
    static class OfObjects implements RocketMQListener<Order> { public void onMessage(Order order) { got("object").add(order.id + order.name); } }

    @RocketMQMessageListener(topic = "SpringTags", consumerGroup = "spring-tags", selectorExpression = "A || C")
    static class Tagged implements RocketMQListener<String> { public void onMessage(String body) { got("tags").add(body); } }

    @RocketMQMessageListener(topic = "SpringSql", consumerGroup = "spring-sql", selectorType = SelectorType.SQL92, selectorExpression = "n > 1")
    static class BySql implements RocketMQListener<MessageExt> { public void onMessage(MessageExt message) { got("sql").add(new String(message.getBody())); } }

    @RocketMQMessageListener(topic = "SpringOrderly", consumerGroup = "spring-orderly", consumeMode = ConsumeMode.ORDERLY)
    static class Orderly implements RocketMQListener<String> { public void onMessage(String body) { got("orderly").add(body); } }

    @RocketMQMessageListener(topic = "SpringTransaction", consumerGroup = "spring-transaction")
    static class Committed implements RocketMQListener<String> { public void onMessage(String body) { got("transaction").add(body); } }

    @RocketMQTransactionListener
    static class Verdicts implements RocketMQLocalTransactionListener {
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object argument) { return RocketMQLocalTransactionState.valueOf((String) argument); }
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) { return RocketMQLocalTransactionState.COMMIT; }
    }

    interface Case { Object run() throws Exception; }

    static final ExecutorService ALL = Executors.newCachedThreadPool();

    static void show(String name, Case one) { ALL.submit(() -> say(name, one)); }

    static void say(String name, Case one) {
        String said;
        long begin = System.currentTimeMillis();
        try { said = String.valueOf(one.run()); } catch (Throwable problem) { said = "FAILED " + problem; }
        System.out.println("CASE\t" + name + "\t" + said + "\t" + (System.currentTimeMillis() - begin));
    }

    static boolean until(BooleanSupplier holds) throws InterruptedException {
        for (long end = System.currentTimeMillis() + 150_000; System.currentTimeMillis() < end; Thread.sleep(50)) if (holds.getAsBoolean()) return true;
        return false;
    }

    static Object seen(String name, int count) throws InterruptedException { until(() -> got(name).size() >= count); return new TreeSet<>(got(name)); }

    public static void main(String[] arguments) throws Exception {
        SpringApplication application = new SpringApplication(SpringProgram.class);
        application.setWebApplicationType(WebApplicationType.NONE);
        application.setDefaultProperties(Map.of("rocketmq.name-server", arguments[0], "rocketmq.producer.group", "spring-producer",
            "rocketmq.producer.send-message-timeout", "60000", "rocketmq.pull-consumer.group", "spring-pull", "rocketmq.pull-consumer.topic", "SpringPull", "spring.main.banner-mode", "off", "logging.level.root", "warn"));
        try (ConfigurableApplicationContext context = application.run()) {
            RocketMQTemplate template = context.getBean(RocketMQTemplate.class);
            // A new group begins at the end of its queues: what is sent before it has them may be skipped, as with RocketMQ.
            for (DefaultRocketMQListenerContainer each : context.getBeansOfType(DefaultRocketMQListenerContainer.class).values())
                until(() -> each.getConsumer().getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream().filter(queue -> queue.getTopic().equals(each.getTopic())).count() == 4);
            for (int i = 0; i < 4; i++) {
                template.convertAndSend("SpringPlain", "p" + i);
                template.syncSend("SpringTags:" + "ABCD".charAt(i), "t" + i);
                template.syncSend("SpringSql", MessageBuilder.withPayload("s" + i).setHeader("n", i).build());
                template.syncSendOrderly("SpringOrderly", "o" + i, "same");
                template.syncSend("SpringPull", "l" + i);
            }
            show("send", () -> template.syncSend("SpringPlain", "one").getSendStatus());
            Order order = new Order(); order.id = 7; order.name = "book";
            show("object", () -> { template.syncSend("SpringObject", order); return seen("object", 1); });
            show("batch", () -> { List<Message<String>> all = IntStream.range(0, 3).mapToObj(i -> MessageBuilder.withPayload("b" + i).build()).collect(Collectors.toList()); return template.syncSend("SpringPlain", all).getSendStatus(); });
            show("delay", () -> { long begin = System.currentTimeMillis(); SendStatus sent = template.syncSend("SpringPlain", MessageBuilder.withPayload("late").build(), 60_000, 1).getSendStatus(); until(() -> got("plain").contains("late")); return sent + " " + (System.currentTimeMillis() - begin > 900); });
            show("timer", () -> { long begin = System.currentTimeMillis(); SendStatus sent = template.syncSendDelayTimeSeconds("SpringPlain", "later", 2).getSendStatus(); until(() -> got("plain").contains("later")); return sent + " " + (System.currentTimeMillis() - begin > 900); });
            show("transaction", () -> { for (String verdict : List.of("ROLLBACK", "COMMIT")) template.sendMessageInTransaction("SpringTransaction", MessageBuilder.withPayload(verdict).build(), verdict); return seen("transaction", 1); });
            show("plain", () -> { until(() -> got("plain").size() >= 10); return got("plain").size() >= 10; });
            show("tags", () -> seen("tags", 2));
            show("sql", () -> seen("sql", 2));
            show("orderly", () -> { until(() -> got("orderly").size() >= 4); return got("orderly"); });
            show("pull", () -> { TreeSet<String> all = new TreeSet<>(); until(() -> { all.addAll(template.receive(String.class, 1000)); return all.size() >= 4; }); return all; });
            ALL.shutdown();
            ALL.awaitTermination(500, TimeUnit.SECONDS);
        }
        System.exit(0);
    }
}
