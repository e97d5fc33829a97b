import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's own message store with SYNC_FLUSH, without a broker around it.
 *
 * put ROOT COMMITLOG: puts three messages, says READY, and puts VICTIM after a line on stdin; ends without a shutdown.
 * get ROOT COMMITLOG: recovers and says which messages can be read.
 */
public class StoreProbe {
    private static final String TOPIC = "orders";
    private static final int HEALTHY_COUNT = 3;

    public static void main(String[] args) {
        int code = 1;
        try {
            run(args);
            code = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(code);
    }

    private static void run(String[] args) throws Exception {
        DefaultMessageStore store = open(args[1], args[2]);
        if (args[0].equals("put")) {
            for (int i = 0; i < HEALTHY_COUNT; i++) {
                say("PUT", "healthy-" + i, store.putMessage(message("healthy-" + i)));
            }
            System.out.println("READY");
            System.in.read();
            say("PUT", "VICTIM", store.putMessage(message("VICTIM")));
            System.out.println("WRITEABLE\t" + store.getRunningFlags().isWriteable());
        } else {
            GetMessageResult found = store.getMessage("group", TOPIC, 0, 0, 32, null);
            List<String> bodies = new ArrayList<>();
            found.getMessageBufferList().forEach(buffer -> {
                MessageExt message = MessageDecoder.decode(buffer);
                bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
            });
            System.out.println("FOUND\t" + String.join(",", bodies));
        }
    }

    private static void say(String word, String body, PutMessageResult result) {
        System.out.println(word + "\t" + body + "\t" + result.getPutMessageStatus());
    }

    private static DefaultMessageStore open(String root, String commitLog) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(commitLog);
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeConsumeQueue(20 * 1000);
        config.setMaxHashSlotNum(1000);
        config.setMaxIndexNum(4000);
        config.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
        config.setSyncFlushTimeout(8000);
        config.setHaListenPort(0);
        config.setDuplicationEnable(false);
        config.setDiskMaxUsedSpaceRatio(95);
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("probe");
        DefaultMessageStore store = new DefaultMessageStore(
            config, new BrokerStatsManager("probe", true), (a, b, c, d, e, f, g) -> { }, broker,
            new ConcurrentHashMap<>());
        store.load();
        store.start();
        return store;
    }

    private static MessageExtBrokerInner message(String body) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setBody(body.getBytes(StandardCharsets.UTF_8));
        message.setQueueId(0);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        message.setKeys(body);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }
}
