"""The page in Chinese, by its English texts. A head that begins with # is a column of numbers."""

CHINESE = {
    # Head and foot
    "Log analytics": "消息日志分析",
    "The log has no message.": "日志中没有消息。",
    "{begin} to {end} UTC ({span})": "{begin} 至 {end} UTC（{span}）",
    "messages": "条消息",
    "of records": "记录总量",
    "topics, {queues} queues": "个主题，{queues} 个队列",
    "on average, {peak} at most": "平均速率，峰值 {peak}",
    "messages behind, all groups": "条消息积压（所有消费者组）",
    "until the disk is full, as it grows now": "后磁盘写满（按目前的增长）",
    "queue offsets missing": "个队列位点缺失",
    "messages stored again": "条消息重复存储",
    "All rows are in the tables beside this page, as CSV and as Parquet:": (
        "全部数据见本页旁边的表格（CSV 和 Parquet）："
    ),
    "Made by {command} on {time} UTC.": "由 {command} 生成于 {time} UTC。",
    # Names of sections
    "Consumers": "消费进度",
    "Waiting": "消费时延",
    "Retries": "重试与死信",
    "Growth": "增长",
    "Traffic": "流量",
    "Delay": "存储时延",
    "Topics": "主题",
    "Queues": "队列",
    "Keys": "Key",
    "Duplicates": "重复消息",
    "Index": "索引",
    # Consumers
    "How many messages each group had still to consume, at the end of each step. In flight counts as not consumed. "
    "The groups that are furthest behind come first.": (
        "每个时间段结束时各消费者组尚未消费的消息数；处理中的消息算作未消费。积压最多的排在最前。"
    ),
    "The log does not say where any consumer group was.": "日志中没有消费者组的进度。",
    "Messages behind over time": "积压消息数变化",
    "group": "消费者组",
    "topic": "主题",
    "#queues": "#队列数",
    "over time": "变化",
    "#behind at the end": "#末尾积压",
    "#at most": "#最大积压",
    "#oldest waits for": "#最早一条已等待",
    "The {count} that are furthest behind": "积压最多的 {count} 项",
    # Waiting
    "From storing, and from birth, until a group acknowledged a message or committed a position behind it. "
    "Messages that were retried, filtered out or skipped by a reset do not count.": (
        "从存储（以及从产生）到消费者组确认消息或提交其后位点的时间。被重试、被过滤以及因重置位点而跳过的消息不计入。"
    ),
    "The log does not say when any message was consumed.": "日志中没有消息被消费的时间。",
    "#consumed": "#已消费",
    "#stored to consumed, p50": "#存储到消费 p50",
    "#stored to consumed, p99": "#存储到消费 p99",
    "#stored to consumed, longest": "#存储到消费 最长",
    "#born to consumed, p50": "#产生到消费 p50",
    "#born to consumed, p99": "#产生到消费 p99",
    "#longest": "#最长",
    # Retries
    "Copies in retry and dead-letter topics. Not acknowledged: a message was handed out, and no acknowledgement "
    "came in time. Sent back: a consumer that pulls returned it.": (
        "重试主题和死信主题中的副本。未确认：消息已投递，但未按时确认。退回：由拉取方式的消费者退回。"
    ),
    "No message was retried or became a dead letter.": "没有消息被重试或成为死信。",
    "kind": "类型",
    "cause": "原因",
    "retry": "重试",
    "dead letter": "死信",
    "sent back": "退回",
    "not acknowledged": "未确认",
    "#copies": "#副本数",
    "#messages": "#消息数",
    "#most attempts": "#最多投递次数",
    "#last one (UTC)": "#最近一次（UTC）",
    # Growth
    "Full in: if the store goes on growing like this and nothing is removed. If log files are kept for less than "
    "what the disk holds, retention keeps it from becoming full.": (
        "写满时间：假设一直按此速率增长且不删除任何文件。如果日志文件的保留时间短于磁盘可容纳的时间，过期删除会避免磁"
        "盘写满。"
    ),
    "the last hour": "最近一小时",
    "the last day": "最近一天",
    "the last week": "最近一周",
    "the whole log": "整个日志",
    "over": "统计范围",
    "#log": "#日志",
    "#queues and index": "#队列和索引",
    "#growth": "#增长速率",
    "#full in": "#多久后写满",
    "#holds a log of": "#可容纳多久的日志",
    "The disk has {free} of {size} free.": "磁盘共 {size}，剩余 {free}。",
    # Traffic and delay
    "Messages per second": "每秒消息数",
    "Bytes per second": "每秒字节数",
    "{title}, by topic, over time": "{title}（按主题，随时间变化）",
    "By store time, in steps of {step}; topics stacked, the largest at the bottom.": (
        "按存储时间统计，步长 {step}；各主题叠加，最大的在底部。"
    ),
    "half of the messages (p50)": "半数消息（p50）",
    "99 of 100 (p99)": "99% 的消息（p99）",
    "Delay from birth to store over time": "从产生到存储的时延变化",
    "From the creation of a message by its producer until the store wrote it; delayed messages wait on purpose.": (
        "从生产者创建消息到存储写入的时间；延时消息是有意等待的。"
    ),
    "{count} messages were born after they were stored: their producers' clocks were ahead.": (
        "有 {count} 条消息的产生时间晚于存储时间：其生产者的时钟偏快。"
    ),
    "Delay, all topics": "时延（所有主题）",
    # Topics and queues
    "all others": "其他",
    "#on average": "#平均速率",
    "#bytes": "#字节数",
    "#record, p50": "#记录大小 p50",
    "#largest": "#最大记录",
    "#delay, p50": "#时延 p50",
    "#delay, p99": "#时延 p99",
    "Most messages first.": "按消息数从多到少。",
    "The {count} topics with the most messages.": "消息最多的 {count} 个主题。",
    "messages by queue": "各队列消息数",
    "#fullest / mean": "#最多 / 平均",
    "#gaps": "#断档数",
    "#missing": "#缺失",
    "#repeated": "#重复",
    "A square is a queue; the more messages, the darker. A marked queue has more than one and a half times, or "
    "less than half, its topic's mean. A gap is a range of missing offsets between others of a queue.": (
        "每个方块是一个队列，消息越多颜色越深。带边框的队列消息数超过其主题平均值的 1.5 倍或不足一半。断档是队列中间"
        "一段缺失的位点。"
    ),
    "The largest of {count} gaps": "{count} 个断档中最大的",
    "#queue": "#队列",
    "#first offset missing": "#首个缺失位点",
    "No gaps: every queue has all offsets between its first and its last.": (
        "没有断档：每个队列从首个到最后一个位点都完整。"
    ),
    "queue {queue}: {count} messages, offsets {first} to {last}": (
        "队列 {queue}：{count} 条消息，位点 {first} 至 {last}"
    ),
    # Keys and duplicates
    "Business keys (KEYS). The share of the most used key shows how uneven the load on the index is.": (
        "业务 Key（KEYS）。最常用 Key 的占比反映索引负载是否均匀。"
    ),
    "No message has a key.": "没有消息带 Key。",
    "#uses": "#使用次数",
    "#different keys": "#不同的 Key",
    "#used once": "#只用一次",
    "#uses, p99": "#使用次数 p99",
    "#most uses": "#最多使用次数",
    "share of the most used": "最常用 Key 占比",
    "key": "Key",
    "share": "占比",
    "Unique keys that several messages of a topic have: a producer sent a message again that was already stored.": (
        "同一主题中多条消息共有的唯一 Key：生产者重新发送了已存储的消息。"
    ),
    "No unique key occurs twice in a topic.": "没有唯一 Key在同一主题中出现两次。",
    "unique key": "唯一 Key",
    "#first to last": "#首末间隔",
    "#first at": "#首条位置",
    "#last at": "#末条位置",
    "The keys with the most copies, of {count} such keys": "{count} 个重复 Key 中副本最多的",
    # Index
    "A lookup walks the chain of one hash slot. More long chains than expected by chance (the lines) mean that "
    "keys collide or that few keys are used often.": (
        "查询会遍历一个哈希槽的链。长链明显多于随机预期（横线）时，说明 Key 发生冲突，或少数 Key 被频繁使用。"
    ),
    "The store has no index file with entries.": "存储中没有含条目的索引文件。",
    "file": "文件",
    "from": "开始",
    "to": "结束",
    "#entries": "#条目数",
    "filled": "填充率",
    "#entries / slot": "#条目 / 槽",
    "#walked": "#平均遍历",
    "Chain lengths of used slots; walked: entries that a lookup of a stored key walks on average": (
        "已用槽的链长；平均遍历：查询一个已存储的 Key 平均要遍历的条目数"
    ),
    "; {count} older files are left out": "；省略了 {count} 个较旧的文件",
    "Slots by chain length": "按链长统计的槽数",
    "slots": "槽数",
    "by chance": "随机预期",
}
