import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.api.MessageTrack;

/**
 * What RocketMQ Dashboard and rocketmq-exporter ask through mqadmin's library and no verb of mqadmin prints, or prints only a part of.
 *
 * Arguments: name server, a method of the library, and its arguments. Prints the answer as JSON, or the code of the refusal.
 */
public class AdminLibrary {
    static final long TIMEOUT_MILLIS = 60_000;

    public static void main(String[] args) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MILLIS);
        admin.setInstanceName("library" + System.nanoTime());
        admin.setNamesrvAddr(args[0]);
        admin.start();
        try {
            System.out.println(RemotingSerializable.toJson(ask(admin, args[1], Arrays.asList(args).subList(2, args.length)), true));
        } catch (MQBrokerException refused) {
            System.out.println("CODE " + refused.getResponseCode());
        } catch (MQClientException refused) {
            System.out.println("CODE " + refused.getResponseCode());
        } finally {
            admin.shutdown();
        }
    }

    static Object ask(DefaultMQAdminExt admin, String method, List<String> words) throws Exception {
        switch (method) {
            case "queryConsumeTimeSpan": return admin.queryConsumeTimeSpan(words.get(0), words.get(1));
            case "queryTopicConsumeByWho": return new TreeSet<>(admin.queryTopicConsumeByWho(words.get(0)).getGroupList());
            case "getConsumeStatus": {
                List<String> queues = new ArrayList<>();
                admin.getConsumeStatus(words.get(0), words.get(1), "").values()
                    .forEach(of -> of.forEach((queue, at) -> queues.add(queue.getQueueId() + " " + at)));
                return queues;
            }
            case "fetchTopicsByCLuster": return new TreeSet<>(admin.fetchTopicsByCLuster(words.get(0)).getTopicList()).contains(words.get(1));
            case "earliestMsgStoreTime": return admin.earliestMsgStoreTime(queue(words));
            case "searchOffset": return admin.searchOffset(queue(words), Long.parseLong(words.get(3)));
            case "minAndMaxOffset": return admin.minOffset(queue(words)) + " to " + admin.maxOffset(queue(words));
            case "examineTopicConfig": return admin.examineTopicConfig(words.get(0), words.get(1));
            case "getUserTopicConfig": return admin.getUserTopicConfig(words.get(0), true, TIMEOUT_MILLIS).getTopicConfigTable().get(words.get(1));
            case "getUserSubscriptionGroup":
                return new TreeSet<>(admin.getUserSubscriptionGroup(words.get(0), TIMEOUT_MILLIS).getSubscriptionGroupTable().keySet());
            case "fetchConsumeStatsInBroker": {
                List<String> rows = new ArrayList<>();
                admin.fetchConsumeStatsInBroker(words.get(0), false, TIMEOUT_MILLIS).getConsumeStatsList()
                    .forEach(of -> of.forEach((group, all) -> all.forEach(stats -> stats.getOffsetTable().forEach((queue, at) ->
                        rows.add(group + " " + queue.getTopic() + " " + queue.getQueueId() + " " + at.getBrokerOffset() + " " + at.getConsumerOffset())))));
                return rows;
            }
            case "getAllProducerInfo": return new TreeMap<>(admin.getAllProducerInfo(words.get(0)).getData()).keySet();
            case "viewBrokerStatsData": return admin.viewBrokerStatsData(words.get(0), words.get(1), words.get(2)).getStatsDay() != null;
            case "getKVListByNamespace": return new TreeMap<>(admin.getKVListByNamespace(words.get(0)).getTable());
            case "messageTrackDetail": {
                List<String> tracks = new ArrayList<>();
                for (MessageTrack track : admin.messageTrackDetail(admin.viewMessage(words.get(0), words.get(1))))
                    tracks.add(track.getConsumerGroup() + " " + track.getTrackType());
                return tracks;
            }
            default: throw new IllegalArgumentException(method);
        }
    }

    /** TOPIC BROKER QUEUE_ID */
    static MessageQueue queue(List<String> words) {
        return new MessageQueue(words.get(0), words.get(1), Integer.parseInt(words.get(2)));
    }
}
