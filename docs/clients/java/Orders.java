// Appends messages, finds them by each of the four queries, reads all pages of an answer, and consumes: ADDRESS TOPIC.
//
// REPUT_CLIENT_CA names the authority of the gateway's certificate (PEM); without it the connection has no TLS.
// REPUT_API_KEY is sent with each call.

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.MetadataUtils;
import com.google.protobuf.ByteString;
import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import reput.gateway.v1.AppendMessagesRequest;
import reput.gateway.v1.CommitOffsetsRequest;
import reput.gateway.v1.GatewayServiceGrpc;
import reput.gateway.v1.GetOffsetsRequest;
import reput.gateway.v1.ListTopicsRequest;
import reput.gateway.v1.ListTopicsResponse;
import reput.gateway.v1.PullMessagesRequest;
import reput.gateway.v1.PullMessagesResponse;
import reput.gateway.v1.QueryMessageByIdRequest;
import reput.gateway.v1.QueryMessageByKeyRequest;
import reput.gateway.v1.QueryMessageByOffsetRequest;
import reput.gateway.v1.QueryMessageByUniqueKeyRequest;
import reput.gateway.v1.QueuePosition;
import reput.gateway.v1.ShardOutcome;
import reput.message.v1.AppendResult;
import reput.message.v1.Completeness;
import reput.message.v1.FlushMode;
import reput.message.v1.NewMessage;

public class Orders {
    static final int COUNT = 100;

    final GatewayServiceGrpc.GatewayServiceBlockingStub gateway;
    final String topic;
    final String order = "order-" + System.currentTimeMillis() + System.nanoTime() % 1_000_000;

    Orders(GatewayServiceGrpc.GatewayServiceBlockingStub gateway, String topic) {
        this.gateway = gateway;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        String ca = System.getenv("REPUT_CLIENT_CA");
        String key = System.getenv("REPUT_API_KEY");
        ChannelCredentials security = ca == null
                ? InsecureChannelCredentials.create()
                : TlsChannelCredentials.newBuilder().trustManager(new File(ca)).build();
        ManagedChannel channel = Grpc.newChannelBuilder(arguments[0], security).build();
        try {
            var gateway = GatewayServiceGrpc.newBlockingStub(channel).withDeadlineAfter(15, TimeUnit.SECONDS);
            if (key != null) {
                Metadata metadata = new Metadata();
                metadata.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + key);
                gateway = gateway.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(metadata));
            }
            new Orders(gateway, arguments[1]).run();
        } catch (PartialAnswer partial) {
            System.err.println(partial.getMessage());
            System.exit(1);
        } finally {
            channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
        }
    }

    void run() {
        List<AppendResult> receipts = append();
        query(receipts.get(7));
        readPages(receipts.get(COUNT - 1));
        consume(topic + "-readers");
        consume(topic + "-readers"); // the group goes on where it stopped
    }

    List<AppendResult> append() {
        AppendMessagesRequest.Builder request = AppendMessagesRequest.newBuilder().setFlush(FlushMode.FLUSH_MODE_SYNC);
        for (int number = 0; number < COUNT; number++) {
            request.addMessages(NewMessage.newBuilder()
                    .setTopic(topic)
                    .setBody(ByteString.copyFromUtf8("line " + number))
                    .addKeys(order)
                    .addKeys(order + "-" + number));
        }
        List<AppendResult> receipts = gateway.appendMessages(request.build()).getResultsList();
        System.out.println("appended " + receipts.size());
        return receipts;
    }

    void query(AppendResult receipt) {
        // With a receipt's token, a query waits until it can see that message.
        var byKey = gateway.queryMessageByKey(QueryMessageByKeyRequest.newBuilder()
                .setTopic(topic)
                .setKey(order + "-7")
                .addFreshnessTokens(receipt.getFreshnessToken())
                .build());
        checkWhole(byKey.getCompleteness(), byKey.getShardsList());
        System.out.println("by key " + byKey.getMessagesCount());
        var byUniqueKey = gateway.queryMessageByUniqueKey(QueryMessageByUniqueKeyRequest.newBuilder()
                .setTopic(topic)
                .setUniqueKey(receipt.getUniqueKey())
                .addFreshnessTokens(receipt.getFreshnessToken())
                .build());
        checkWhole(byUniqueKey.getCompleteness(), byUniqueKey.getShardsList());
        System.out.println("by unique key " + byUniqueKey.getMessagesCount());
        var byId = gateway.queryMessageById(
                QueryMessageByIdRequest.newBuilder().setOffsetMsgId(receipt.getOffsetMsgId()).build());
        System.out.println("by id " + byId.getMessage().getBody().toStringUtf8());
        var byOffset = gateway.queryMessageByOffset(QueryMessageByOffsetRequest.newBuilder()
                .setTopic(topic)
                .setBrokerName(receipt.getBrokerName())
                .setQueueId(receipt.getQueueId())
                .setQueueOffset(receipt.getQueueOffset())
                .setMaxMessages(1)
                .addFreshnessTokens(receipt.getFreshnessToken())
                .build());
        checkWhole(byOffset.getCompleteness(), byOffset.getShardsList());
        System.out.println("by offset " + byOffset.getMessagesCount());
    }

    void readPages(AppendResult last) {
        QueryMessageByKeyRequest.Builder request = QueryMessageByKeyRequest.newBuilder()
                .setTopic(topic)
                .setKey(order)
                .setPageSize(30)
                .addFreshnessTokens(last.getFreshnessToken());
        int found = 0;
        do {
            var page = gateway.queryMessageByKey(request.build());
            checkWhole(page.getCompleteness(), page.getShardsList());
            found += page.getMessagesCount();
            request.setPageToken(page.getNextPageToken());
        } while (!request.getPageToken().isEmpty()); // a page may be empty and still have a token
        System.out.println("on all pages " + found);
    }

    /** A part of the store could not be asked: "not found" would be no answer. */
    static class PartialAnswer extends RuntimeException {
        PartialAnswer(List<String> missing) {
            super("PARTIAL: " + String.join("; ", missing));
        }
    }

    static void checkWhole(Completeness completeness, List<ShardOutcome> shards) {
        if (completeness != Completeness.COMPLETENESS_PARTIAL) {
            return;
        }
        List<String> missing = new ArrayList<>();
        for (ShardOutcome shard : shards) {
            if (shard.hasError()) {
                missing.add(shard.getBrokerName() + ": " + shard.getError().getMessage());
            } else if (shard.getCatchingUp()) {
                missing.add(shard.getBrokerName() + ": still building");
            }
        }
        throw new PartialAnswer(missing);
    }

    void consume(String group) {
        Map<String, Long> known = new HashMap<>();
        try {
            var request = GetOffsetsRequest.newBuilder().setConsumerGroup(group).setTopic(topic).build();
            for (QueuePosition position : gateway.getOffsets(request).getPositionsList()) {
                known.put(position.getBrokerName() + "/" + position.getQueueId(), position.getConsumerOffset());
            }
        } catch (StatusRuntimeException error) {
            if (error.getStatus().getCode() != Status.Code.NOT_FOUND) { // a new group
                throw error;
            }
        }
        int consumed = 0;
        var topics = gateway.listTopics(ListTopicsRequest.newBuilder().setTopic(topic).build());
        for (ListTopicsResponse.Queue queue : topics.getTopics(0).getQueuesList()) {
            long next = known.getOrDefault(queue.getBrokerName() + "/" + queue.getQueueId(), queue.getMinOffset());
            // With `wait` the stream would go on with what arrives.
            Iterator<PullMessagesResponse> stream = gateway.pullMessages(PullMessagesRequest.newBuilder()
                    .setTopic(topic)
                    .setBrokerName(queue.getBrokerName())
                    .setQueueId(queue.getQueueId())
                    .setQueueOffset(next)
                    .setConsumerGroup(group)
                    .build());
            while (stream.hasNext()) {
                PullMessagesResponse batch = stream.next();
                consumed += batch.getMessagesCount(); // work on them, then commit
                next = batch.getNextOffset();
            }
            gateway.commitOffsets(CommitOffsetsRequest.newBuilder()
                    .setConsumerGroup(group)
                    .addPositions(QueuePosition.newBuilder()
                            .setTopic(topic)
                            .setBrokerName(queue.getBrokerName())
                            .setQueueId(queue.getQueueId())
                            .setConsumerOffset(next))
                    .build());
        }
        System.out.println("consumed " + consumed);
    }
}
