import com.google.protobuf.ByteString;
import com.sun.management.OperatingSystemMXBean;
import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.StreamObserver;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import reput.gateway.v1.AppendMessageStreamRequest;
import reput.gateway.v1.AppendMessageStreamResponse;
import reput.gateway.v1.GatewayServiceGrpc;
import reput.message.v1.FlushMode;
import reput.message.v1.NewMessage;

/**
 * Appends on streams of GatewayService with its generated stub and prints one JSON line: messages/s of the measured time, all
 * messages, and this process's CPU for a message in microseconds.
 *
 * HOST:PORT TOPIC STREAMS WINDOW BODY_BYTES BATCH WARM_SECONDS SECONDS; all streams on one connection, WINDOW requests of BATCH
 * messages under way on each. Each message has a key of its own and a tag.
 */
public class AppendStreams {
    private static final int FIRST_SECONDS_MAX = 30;
    private static final int DRAIN_SECONDS_MAX = 60;

    private final String topic;
    private final ByteString body;
    private final int batch;
    private final int window;
    private final AtomicLong sequence = new AtomicLong();
    private final AtomicLong appended = new AtomicLong();
    private final AtomicReference<Throwable> failed = new AtomicReference<>();
    private volatile boolean over;

    private AppendStreams(String[] args) {
        topic = args[1];
        window = Integer.parseInt(args[3]);
        byte[] bytes = new byte[Integer.parseInt(args[4])];
        new Random(1).nextBytes(bytes);
        body = ByteString.copyFrom(bytes);
        batch = Integer.parseInt(args[5]);
    }

    public static void main(String[] args) throws Exception {
        new AppendStreams(args).measure(args[0], Integer.parseInt(args[2]), Double.parseDouble(args[6]),
            Double.parseDouble(args[7]));
        System.exit(0);
    }

    private void measure(String target, int streams, double warmSeconds, double seconds) throws Exception {
        ManagedChannel channel = NettyChannelBuilder.forTarget(target).usePlaintext().directExecutor().build();
        List<Thread> senders = new ArrayList<>();
        for (int i = 0; i < streams; i++) {
            Thread sender = new Thread(() -> send(GatewayServiceGrpc.newStub(channel)));
            senders.add(sender);
            sender.start();
        }
        long connectBy = System.nanoTime() + TimeUnit.SECONDS.toNanos(FIRST_SECONDS_MAX);
        while (appended.get() == 0 && failed.get() == null && System.nanoTime() < connectBy) {
            Thread.sleep(10); // connecting is not measured
        }
        sleep(warmSeconds);
        long first = appended.get();
        long begin = System.nanoTime();
        sleep(seconds);
        long count = appended.get() - first;
        double measuredSeconds = (System.nanoTime() - begin) / 1e9;
        over = true;
        for (Thread sender : senders) {
            sender.join();
        }
        if (failed.get() != null || count == 0) {
            throw new IllegalStateException("appends failed, or none was answered", failed.get());
        }
        long cpuNanos = ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
        System.out.printf("{\"rate\": %.1f, \"count\": %d, \"cpu_micros\": %.3f}%n", count / measuredSeconds, appended.get(),
            cpuNanos / 1e3 / appended.get());
    }

    private static void sleep(double seconds) throws InterruptedException {
        Thread.sleep((long) (seconds * 1e3));
    }

    private void send(GatewayServiceGrpc.GatewayServiceStub stub) {
        Semaphore free = new Semaphore(window);
        StreamObserver<AppendMessageStreamRequest> requests = stub.appendMessageStream(new StreamObserver<>() {
            @Override
            public void onNext(AppendMessageStreamResponse response) {
                if (response.hasError()) {
                    onError(new IllegalStateException(response.getError().getMessage()));
                    return;
                }
                appended.addAndGet(response.getResultsCount());
                free.release();
            }

            @Override
            public void onError(Throwable error) {
                failed.compareAndSet(null, error);
                free.release(window);
            }

            @Override
            public void onCompleted() {
            }
        });
        try {
            while (!over && failed.get() == null) {
                if (free.tryAcquire(1, TimeUnit.SECONDS)) {
                    requests.onNext(request());
                }
            }
            if (failed.get() == null && !free.tryAcquire(window, DRAIN_SECONDS_MAX, TimeUnit.SECONDS)) {
                failed.compareAndSet(null, new IllegalStateException("answers are missing"));
            }
        } catch (InterruptedException | RuntimeException error) {
            failed.compareAndSet(null, error);
        }
    }

    private AppendMessageStreamRequest request() {
        AppendMessageStreamRequest.Builder request =
            AppendMessageStreamRequest.newBuilder().setFlush(FlushMode.FLUSH_MODE_ASYNC);
        for (int i = 0; i < batch; i++) {
            request.addMessages(NewMessage.newBuilder().setTopic(topic).setBody(body)
                .addKeys("key-" + sequence.incrementAndGet()).setTags("TagA"));
        }
        return request.build();
    }
}
