import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's own message store without a broker around it: loads a root, recovers it, waits until queues and index
 * are built, says so in one JSON line, and shuts down cleanly so that all of it is in the files.
 *
 * ROOT COMMIT_LOG_FILE_BYTES INDEX_SLOTS INDEX_ENTRIES
 */
public class StoreRebuild {
    public static void main(String[] args) throws Exception {
        long start = System.nanoTime();
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[0]);
        config.setStorePathCommitLog(args[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(args[1]));
        config.setMaxHashSlotNum(Integer.parseInt(args[2]));
        config.setMaxIndexNum(Integer.parseInt(args[3]));
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        config.setCheckCRCOnRecover(true);
        config.setTimerWheelEnable(false);
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(99);
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("broker-a");
        DefaultMessageStore store = new DefaultMessageStore(
            config, new BrokerStatsManager("benchmark", true), (a, b, c, d, e, f, g) -> { }, broker,
            new ConcurrentHashMap<>());
        boolean loaded = store.load();
        store.start();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(5);
        }
        System.out.printf("{\"seconds\": %.3f, \"loaded\": %b, \"log_end_offset\": %d}%n",
            (System.nanoTime() - start) / 1e9, loaded, store.getMaxPhyOffset());
        System.out.flush();
        store.shutdown();
        System.exit(0);
    }
}
