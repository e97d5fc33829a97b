import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Reads a whole topic with PullMessages of reput.gateway.v1 and prints one JSON line. Each message is decoded: topic, body and
 * properties. It has no generated code, so that it needs no compiler of protos.
 *
 * HOST:PORT TOPIC QUEUES BATCH: all queues at the same time, a stream each, to their ends.
 */
public class BulkPull {
    private static final int TOPIC_FIELD = 1;
    private static final int BODY_FIELD = 15;
    private static final int PROPERTIES_FIELD = 16;
    private static final int BATCH_BYTES = 1 << 20;
    private static final int ANSWER_BYTES_MAX = 16 << 20;
    private static final MethodDescriptor.Marshaller<byte[]> BYTES = new MethodDescriptor.Marshaller<>() {
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
    };
    private static final MethodDescriptor<byte[], byte[]> PULL = MethodDescriptor.<byte[], byte[]>newBuilder(BYTES, BYTES)
        .setType(MethodDescriptor.MethodType.SERVER_STREAMING)
        .setFullMethodName("reput.gateway.v1.GatewayService/PullMessages").build();
    private static final AtomicLong GOT = new AtomicLong();
    private static final AtomicLong BODY_BYTES = new AtomicLong();

    public static void main(String[] args) throws Exception {
        ManagedChannel channel = NettyChannelBuilder.forTarget(args[0]).usePlaintext()
            .maxInboundMessageSize(ANSWER_BYTES_MAX).build();
        List<Thread> threads = new ArrayList<>();
        long begin = System.nanoTime();
        for (int queue = 0; queue < Integer.parseInt(args[2]); queue++) {
            byte[] request = request(args[1], queue, Integer.parseInt(args[3]));
            Thread thread = new Thread(() -> pull(channel, request));
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.printf("{\"rate\": %.1f, \"count\": %d, \"bytes\": %d}%n",
            GOT.get() / ((System.nanoTime() - begin) / 1e9), GOT.get(), BODY_BYTES.get());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static byte[] request(String topic, int queue, int batch) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        CodedOutputStream out = CodedOutputStream.newInstance(bytes);
        out.writeString(1, topic);
        out.writeInt32(2, queue);
        out.writeInt32(5, batch);
        out.writeInt32(6, BATCH_BYTES);
        out.flush();
        return bytes.toByteArray();
    }

    private static void pull(ManagedChannel channel, byte[] request) {
        Iterator<byte[]> batches =
            ClientCalls.blockingServerStreamingCall(channel, PULL, CallOptions.DEFAULT, request);
        try {
            while (batches.hasNext()) {
                CodedInputStream in = CodedInputStream.newInstance(batches.next());
                for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
                    if (tag >>> 3 == 1) {
                        message(in.readByteArray());
                    } else {
                        in.skipField(tag);
                    }
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Decodes a StoredMessage; the numbers of its fields stand in protos/reput/message/v1/message.proto. */
    private static void message(byte[] bytes) throws IOException {
        CodedInputStream in = CodedInputStream.newInstance(bytes);
        String topic = "";
        byte[] body = new byte[0];
        Map<String, String> properties = new HashMap<>();
        for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
            switch (tag >>> 3) {
                case TOPIC_FIELD:
                    topic = in.readString();
                    break;
                case BODY_FIELD:
                    body = in.readByteArray();
                    break;
                case PROPERTIES_FIELD:
                    CodedInputStream entry = CodedInputStream.newInstance(in.readByteArray());
                    entry.readTag();
                    String name = entry.readString();
                    properties.put(name, entry.readTag() == 0 ? "" : entry.readString());
                    break;
                default:
                    in.skipField(tag);
            }
        }
        GOT.incrementAndGet();
        BODY_BYTES.addAndGet(body.length + (topic.isEmpty() || properties.isEmpty() ? 0 : properties.size()));
    }
}
