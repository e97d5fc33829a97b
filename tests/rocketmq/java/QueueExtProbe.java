import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.rocketmq.filter.util.BitsArray;
import org.apache.rocketmq.filter.util.BloomFilter;
import org.apache.rocketmq.store.ConsumeQueueExt;

/**
 * RocketMQ's own ConsumeQueueExt and BloomFilter, without a broker.
 *
 * put DIR FILE_SIZE: puts the units of stdin (tags code, store time and bit map in hex, or -) and prints their addresses.
 * get DIR FILE_SIZE: recovers DIR and prints the units at the addresses of stdin.
 * bloom F N: prints the bit count, then for each line of stdin its bit positions and its bit map alone.
 */
public class QueueExtProbe {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        if (args[0].equals("bloom")) {
            bloom(in, BloomFilter.createByFn(Integer.parseInt(args[1]), Integer.parseInt(args[2])));
        } else {
            ConsumeQueueExt ext = new ConsumeQueueExt("t", 0, args[1], Integer.parseInt(args[2]), 64);
            ext.load();
            ext.recover();
            String line;
            while ((line = in.readLine()) != null) {
                System.out.println("> " + (args[0].equals("put") ? put(ext, line.split(" ")) : get(ext, Long.parseLong(line))));
            }
            ext.flush(0);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String put(ConsumeQueueExt ext, String[] fields) {
        byte[] bitMap = fields[2].equals("-") ? null : HexFormat.of().parseHex(fields[2]);
        return "" + ext.put(new ConsumeQueueExt.CqExtUnit(Long.parseLong(fields[0]), Long.parseLong(fields[1]), bitMap));
    }

    private static String get(ConsumeQueueExt ext, long address) {
        ConsumeQueueExt.CqExtUnit unit = ext.get(address);
        if (unit == null) {
            return "-";
        }
        byte[] bitMap = unit.getFilterBitMap();
        return unit.getTagsCode() + " " + unit.getMsgStoreTime() + " " + (bitMap == null ? "-" : HexFormat.of().formatHex(bitMap));
    }

    private static void bloom(BufferedReader in, BloomFilter filter) throws Exception {
        System.out.println("> " + filter.getM());
        String line;
        while ((line = in.readLine()) != null) {
            BitsArray bits = BitsArray.create(filter.getM());
            filter.hashTo(line, bits);
            StringBuilder answer = new StringBuilder(HexFormat.of().formatHex(bits.bytes()));
            for (int position : filter.calcBitPositions(line)) {
                answer.append(' ').append(position);
            }
            System.out.println("> " + answer);
        }
    }
}
