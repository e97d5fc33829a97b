import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.util.concurrent.TimeUnit;
import reput.gateway.v1.GatewayServiceGrpc;
import reput.gateway.v1.QueryMessageByIdRequest;
import reput.gateway.v1.QueryMessageByKeyRequest;
import reput.gateway.v1.QueryMessageByOffsetRequest;
import reput.gateway.v1.QueryMessageByUniqueKeyRequest;

/**
 * The four queries of GatewayService through its generated stub, warmed; one JSON line with p50 and p99 of each.
 *
 * HOST:PORT TOPIC SAMPLES COUNT. SAMPLES is a file of tab-separated lines: key, unique key, commit-log offset, queue id, queue
 * offset, id.
 */
public class GatewayQueries {
    private static final int CALL_SECONDS_MAX = 10;

    public static void main(String[] args) throws Exception {
        ManagedChannel channel = NettyChannelBuilder.forTarget(args[0]).usePlaintext().build();
        String topic = args[1];
        String[][] samples = QueryTiming.samples(args[2]);
        int count = Integer.parseInt(args[3]);
        QueryTiming.Query byKey = s -> stub(channel)
            .queryMessageByKey(QueryMessageByKeyRequest.newBuilder().setTopic(topic).setKey(s[0]).build())
            .getMessagesCount();
        QueryTiming.Query byUniqueKey = s -> stub(channel)
            .queryMessageByUniqueKey(QueryMessageByUniqueKeyRequest.newBuilder().setTopic(topic).setUniqueKey(s[1]).build())
            .getMessagesCount();
        QueryTiming.Query byId = s -> stub(channel)
            .queryMessageById(QueryMessageByIdRequest.newBuilder().setOffsetMsgId(s[5]).build()).hasMessage() ? 1 : 0;
        QueryTiming.Query byOffset = s -> stub(channel)
            .queryMessageByOffset(QueryMessageByOffsetRequest.newBuilder().setTopic(topic)
                .setQueueId(Integer.parseInt(s[3])).setQueueOffset(Long.parseLong(s[4])).setMaxMessages(1).build())
            .getMessagesCount();
        System.out.printf("{\"key\": %s, \"id\": %s, \"unique_key\": %s, \"offset\": %s}%n",
            QueryTiming.measure(byKey, samples, count), QueryTiming.measure(byId, samples, count),
            QueryTiming.measure(byUniqueKey, samples, count), QueryTiming.measure(byOffset, samples, count));
        channel.shutdownNow().awaitTermination(CALL_SECONDS_MAX, TimeUnit.SECONDS);
    }

    private static GatewayServiceGrpc.GatewayServiceBlockingStub stub(ManagedChannel channel) {
        return GatewayServiceGrpc.newBlockingStub(channel).withDeadlineAfter(CALL_SECONDS_MAX, TimeUnit.SECONDS);
    }
}
