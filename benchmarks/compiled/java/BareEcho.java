import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Calls of an echo server that does no work (benchmarks/sides/echo.py), as many and as warm as the queries of GatewayQueries; one
 * JSON line with the figures for each of these.
 *
 * HOST:PORT BYTES, then COUNT or CALLERS WARM_SECONDS SECONDS. BYTES is the size of each request, which is the answer too.
 */
public class BareEcho {
    private static final int CALL_SECONDS_MAX = 10;

    public static void main(String[] args) throws Exception {
        ManagedChannel channel = NettyChannelBuilder.forTarget(args[0]).usePlaintext().build();
        byte[] payload = new byte[Integer.parseInt(args[1])];
        MethodDescriptor<byte[], byte[]> method = MethodDescriptor.newBuilder(new Bytes(), new Bytes())
            .setType(MethodDescriptor.MethodType.UNARY).setFullMethodName("echo.Echo/Unary").build();
        QueryTiming.Query echo = s -> {
            CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(CALL_SECONDS_MAX, TimeUnit.SECONDS);
            return ClientCalls.blockingUnaryCall(channel, method, options, payload).length == payload.length ? 1 : 0;
        };
        String[][] samples = new String[1][0];
        Map<String, QueryTiming.Query> queries = new LinkedHashMap<>();
        for (String kind : new String[] {"key", "id", "unique_key", "offset"}) {
            queries.put(kind, echo);
        }
        System.out.println(QueryTiming.measured(queries, samples, Arrays.copyOfRange(args, 2, args.length)));
        channel.shutdownNow().awaitTermination(CALL_SECONDS_MAX, TimeUnit.SECONDS);
    }

    /** A message is its bytes. */
    private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
        @Override
        public InputStream stream(byte[] value) {
            return new ByteArrayInputStream(value);
        }

        @Override
        public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
