import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.OffsetOption;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The official Java client behind the line protocol of tests/clients/programs.py. */
public class Client {
    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final BufferedReader IN =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private final JsonObject order;
    private final ClientConfiguration configuration;

    private Client(JsonObject order) {
        this.order = order;
        ClientConfigurationBuilder builder =
            ClientConfiguration.newBuilder().setEndpoints(text("endpoint")).enableSsl(false);
        if (order.has("access_key")) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(text("access_key"), text("secret")));
        }
        configuration = builder.build();
    }

    public static void main(String[] args) throws Exception {
        JsonObject order = GSON.fromJson(args[0], JsonObject.class);
        Client client = new Client(order);
        switch (client.text("role")) {
            case "send":
                client.send();
                break;
            case "push":
                client.push();
                break;
            case "lite":
                client.lite();
                break;
            default:
                client.simple();
        }
        say("stopped", new JsonObject());
        System.exit(0);
    }

    private void send() throws Exception {
        ProducerBuilder producerBuilder = PROVIDER.newProducerBuilder()
            .setTopics(text("topic")).setClientConfiguration(configuration);
        if (order.has("checker")) {
            TransactionResolution verdict = TransactionResolution.valueOf(text("checker"));
            producerBuilder.setTransactionChecker(message -> {
                say("checked", described(message));
                return verdict;
            });
        }
        try (Producer producer = producerBuilder.build()) {
            say("started", new JsonObject());
            for (JsonObject line = read(); line != null; line = read()) {
                if (line.has("do")) {
                    recall(producer, line);
                    continue;
                }
                MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(text("topic"))
                    .setBody(line.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
                if (line.has("tag")) {
                    builder.setTag(line.get("tag").getAsString());
                }
                if (line.has("keys")) {
                    builder.setKeys(GSON.fromJson(line.get("keys"), String[].class));
                }
                if (line.has("properties")) {
                    for (Map.Entry<String, JsonElement> each : line.getAsJsonObject("properties").entrySet()) {
                        builder.addProperty(each.getKey(), each.getValue().getAsString());
                    }
                }
                if (line.has("message_group")) {
                    builder.setMessageGroup(line.get("message_group").getAsString());
                }
                if (line.has("priority")) {
                    builder.setPriority(line.get("priority").getAsInt());
                }
                if (line.has("lite_topic")) {
                    builder.setLiteTopic(line.get("lite_topic").getAsString());
                }
                if (line.has("deliver_at_seconds")) {
                    builder.setDeliveryTimestamp(line.get("deliver_at_seconds").getAsLong() * 1000);
                }
                String verdict = line.has("transaction") ? line.get("transaction").getAsString() : null;
                SendReceipt receipt = sendOne(producer, builder.build(), verdict);
                JsonObject said = new JsonObject();
                said.addProperty("message_id", receipt.getMessageId().toString());
                said.addProperty("recall_handle", receipt.getRecallHandle());
                say("sent", said);
            }
        }
    }

    private static SendReceipt sendOne(Producer producer, Message message, String verdict) throws ClientException {
        if (verdict == null) {
            return producer.send(message);
        }
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(message, transaction);
        if (verdict.equals("commit")) {
            transaction.commit();
        } else if (verdict.equals("rollback")) {
            transaction.rollback();
        }
        return receipt;
    }

    private void recall(Producer producer, JsonObject line) {
        JsonObject said = new JsonObject();
        try {
            String handle = line.get("recall_handle").getAsString();
            said.addProperty("message_id", producer.recallMessage(text("topic"), handle).getMessageId().toString());
            say("recalled", said);
        } catch (ClientException error) {
            said.addProperty("error", error.toString());
            say("failed", said);
        }
    }

    private MessageListener listener() {
        Map<String, Integer> calls = new ConcurrentHashMap<>();
        boolean holds = order.has("hold") && order.get("hold").getAsBoolean();
        return message -> {
            int failCount = Integer.parseInt(message.getProperties().getOrDefault("fails", "0"));
            boolean fails = calls.merge(message.getMessageId().toString(), 1, Integer::sum) <= failCount;
            JsonObject said = described(message);
            said.addProperty("outcome", holds ? "held" : fails ? "failure" : "success");
            say("received", said);
            if (holds) {
                try {
                    new CountDownLatch(1).await();
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            }
            return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        };
    }

    private void push() throws Exception {
        try (PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(text("group"))
            .setSubscriptionExpressions(Collections.singletonMap(text("topic"), filter()))
            .setMessageListener(listener()).build()) {
            say("started", new JsonObject());
            while (read() != null) {
                continue;
            }
        }
    }

    private void lite() throws Exception {
        try (LitePushConsumer consumer = PROVIDER.newLitePushConsumerBuilder()
            .bindTopic(text("topic"))
            .setClientConfiguration(configuration)
            .setConsumerGroup(text("group"))
            .setMessageListener(listener()).build()) {
            say("started", new JsonObject());
            for (JsonObject line = read(); line != null; line = read()) {
                JsonObject said = new JsonObject();
                try {
                    switch (line.get("do").getAsString()) {
                        case "subscribe":
                            consumer.subscribeLite(line.get("lite_topic").getAsString(), offsetOption(line));
                            break;
                        case "unsubscribe":
                            consumer.unsubscribeLite(line.get("lite_topic").getAsString());
                            break;
                        default:
                    }
                    said.add("lite_topics", GSON.toJsonTree(new TreeSet<>(consumer.getLiteTopicSet())));
                    say("subscribed", said);
                } catch (ClientException error) {
                    said.addProperty("error", error.toString());
                    say("failed", said);
                }
            }
        }
    }

    private static OffsetOption offsetOption(JsonObject line) {
        String from = line.has("from") ? line.get("from").getAsString() : "last";
        long number = line.has("number") ? line.get("number").getAsLong() : 0;
        switch (from) {
            case "min":
                return OffsetOption.MIN_OFFSET;
            case "max":
                return OffsetOption.MAX_OFFSET;
            case "offset":
                return OffsetOption.ofOffset(number);
            case "tail":
                return OffsetOption.ofTailN(number);
            case "time":
                return OffsetOption.ofTimestamp(number);
            default:
                return OffsetOption.LAST_OFFSET;
        }
    }

    private void simple() throws Exception {
        Map<String, MessageView> held = new HashMap<>();
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(text("group"))
            .setAwaitDuration(Duration.ofSeconds(order.get("await_seconds").getAsLong()))
            .setSubscriptionExpressions(Collections.singletonMap(text("topic"), filter()))
            .build()) {
            say("started", new JsonObject());
            for (JsonObject line = read(); line != null; line = read()) {
                JsonObject said = new JsonObject();
                try {
                    say(act(consumer, line, held, said), said);
                } catch (ClientException error) {
                    said.addProperty("error", error.toString());
                    say("failed", said);
                }
            }
        }
    }

    private String act(SimpleConsumer consumer, JsonObject line, Map<String, MessageView> held, JsonObject said)
        throws ClientException {
        String what = line.get("do").getAsString();
        if (what.equals("receive")) {
            Duration invisible = Duration.ofSeconds(line.get("invisible_seconds").getAsLong());
            List<MessageView> messages = consumer.receive(line.get("batch").getAsInt(), invisible);
            JsonArray batch = new JsonArray();
            for (MessageView message : messages) {
                held.put(message.getMessageId().toString(), message);
                batch.add(described(message));
            }
            said.add("messages", batch);
            return "batch";
        }
        MessageView message = held.get(line.get("message_id").getAsString());
        if (what.equals("ack")) {
            consumer.ack(message);
            return "acked";
        }
        consumer.changeInvisibleDuration(message, Duration.ofSeconds(line.get("invisible_seconds").getAsLong()));
        return "changed";
    }

    private FilterExpression filter() {
        if (order.has("sql")) {
            return new FilterExpression(text("sql"), FilterExpressionType.SQL92);
        }
        return new FilterExpression(order.has("tag") ? text("tag") : "*", FilterExpressionType.TAG);
    }

    private static JsonObject described(MessageView message) {
        JsonObject said = new JsonObject();
        said.addProperty("message_id", message.getMessageId().toString());
        said.addProperty("topic", message.getTopic());
        said.addProperty("body", StandardCharsets.UTF_8.decode(message.getBody()).toString());
        said.addProperty("tag", message.getTag().orElse(null));
        said.add("keys", GSON.toJsonTree(message.getKeys()));
        said.add("properties", GSON.toJsonTree(message.getProperties()));
        said.addProperty("message_group", message.getMessageGroup().orElse(null));
        said.addProperty("priority", message.getPriority().orElse(null));
        said.addProperty("lite_topic", message.getLiteTopic().orElse(null));
        said.addProperty("attempt", message.getDeliveryAttempt());
        return said;
    }

    private static void say(String event, JsonObject said) {
        said.addProperty("event", event);
        OUT.println(GSON.toJson(said));
    }

    private static JsonObject read() throws Exception {
        String line = IN.readLine();
        return line == null ? null : GSON.fromJson(line, JsonObject.class);
    }

    private String text(String name) {
        return order.get(name).getAsString();
    }
}
