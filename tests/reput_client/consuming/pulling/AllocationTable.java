import java.util.*;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.*;
import org.apache.rocketmq.common.message.MessageQueue;

/** Prints how RocketMQ 5.3.3 shares queues among members, as lines of JSON; run once, the output is allocation.jsonl. */
public class AllocationTable {
    public static void main(String[] args) {
        AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
        room.setConsumeridcs(new HashSet<>(Arrays.asList("r1", "r2")));
        AllocateMessageQueueStrategy[] all = {new AllocateMessageQueueAveragely(), new AllocateMessageQueueAveragelyByCircle(),
            room, new AllocateMessageQueueConsistentHash()};
        String[][] brokers = {{"broker-a"}, {"broker-a", "broker-b"}, {"r1@a", "r2@b", "r3@c", "plain"}};
        for (String[] names : brokers)
            for (int queues : new int[] {1, 3, 4, 8})
                for (int members : new int[] {1, 2, 3, 5, 7})
                    for (AllocateMessageQueueStrategy each : all) print(each, names, queues, members);
    }

    static void print(AllocateMessageQueueStrategy strategy, String[] brokers, int queues, int members) {
        List<MessageQueue> all = new ArrayList<>();
        for (String broker : brokers)
            for (int i = 0; i < queues; i++) all.add(new MessageQueue("Orders", broker, i));
        Collections.sort(all);
        List<String> ids = new ArrayList<>();
        for (int i = 0; i < members; i++) ids.add("10.0.0." + (i * 37 % 11) + "@" + (100 + i));
        Collections.sort(ids);
        StringBuilder shares = new StringBuilder();
        for (String id : ids) {
            StringBuilder one = new StringBuilder();
            for (MessageQueue queue : strategy.allocate("group", id, all, ids))
                one.append(one.length() > 0 ? ", " : "").append(all.indexOf(queue));
            shares.append(shares.length() > 0 ? ", " : "").append("[").append(one).append("]");
        }
        System.out.printf("{\"strategy\": \"%s\", \"brokers\": [\"%s\"], \"queue_count\": %d, \"members\": [\"%s\"], \"shares\": [%s]}%n",
            strategy.getName(), String.join("\", \"", brokers), queues, String.join("\", \"", ids), shares);
    }
}
