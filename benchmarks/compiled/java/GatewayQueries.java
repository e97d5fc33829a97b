import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import reput.gateway.v1.GatewayServiceGrpc;
import reput.gateway.v1.QueryMessageByIdRequest;
import reput.gateway.v1.QueryMessageByKeyRequest;
import reput.gateway.v1.QueryMessageByOffsetRequest;
import reput.gateway.v1.QueryMessageByUniqueKeyRequest;

/**
 * The four queries of GatewayService through its generated stub, warmed; one JSON line with p50 and p99 of each, or with
 * its rate.
 *
 * HOST:PORT TOPIC SAMPLES, then COUNT or CALLERS WARM_SECONDS SECONDS. SAMPLES is a file of tab-separated
 * lines: key, unique key, commit-log offset, queue id, queue
 * offset, id.
 */
public class GatewayQueries {
    private static final int CALL_SECONDS_MAX = 10;

    public static void main(String[] args) throws Exception {
        ManagedChannel channel = NettyChannelBuilder.forTarget(args[0]).usePlaintext().build();
        String topic = args[1];
        String[][] samples = QueryTiming.samples(args[2]);
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
        Map<String, QueryTiming.Query> queries = new LinkedHashMap<>();
        queries.put("key", byKey);
        queries.put("id", byId);
        queries.put("unique_key", byUniqueKey);
        queries.put("offset", byOffset);
        System.out.println(QueryTiming.measured(queries, samples, Arrays.copyOfRange(args, 3, args.length)));
        channel.shutdownNow().awaitTermination(CALL_SECONDS_MAX, TimeUnit.SECONDS);
    }

    private static GatewayServiceGrpc.GatewayServiceBlockingStub stub(ManagedChannel channel) {
        return GatewayServiceGrpc.newBlockingStub(channel).withDeadlineAfter(CALL_SECONDS_MAX, TimeUnit.SECONDS);
    }
}
