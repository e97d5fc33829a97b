"""Chinese for what services, readers of bodies and reports tell in English: states by their word, texts by their pattern."""

import re

# Of services (commitlog_svc/log_status.py, services/following/follower_process.py) and of disks (disk_space.py).
STATES: dict[str, str] = {
    "catching-up": "追赶中",
    "clean": "清理过期文件",
    "clean-forcibly": "强制清理",
    "disk-full": "磁盘已满",
    "fenced": "已停止写入",
    "following": "跟随中",
    "full": "已满",
    "mirroring": "镜像中",
    "off": "已关闭",
    "ok": "正常",
    "read-only": "只读",
    "recovering": "恢复中",
    "retrying": "重试中",
    "serving": "服务中",
    "waiting": "等待提交日志",
}
# What a service's problem means, by its state; its own text stays beside it.
PROBLEMS_BY_STATE: dict[str, str] = {
    "fenced": "磁盘拒绝刷盘，该存储已停止写入",
    "following": "broker 的日志现在无法继续跟随",
    "mirroring": "broker 的日志现在无法继续复制",
    "retrying": "上一次尝试失败，将自动重试",
    "waiting": "提交日志没有应答，将自动重试",
}
PROBLEM = "该服务报告了一个问题"

# Whole texts; a group of the pattern fills the place with its number.
TOLD: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), chinese)
    for pattern, chinese in (
        (
            r"no space left for the log: free some, appends go on by themselves",
            "日志没有可用空间：释放空间后写入自动恢复",
        ),
        (
            r"members subscribe to different topics or with different filters, so messages are missed: (.*)",
            "成员订阅的主题或过滤条件不一致，会漏掉消息：{0}",
        ),
        (
            r"its settings in (.*) differ from those in (.*): set them with UpdateConsumerGroup",
            "该组在 {0} 中的设置与 {1} 中不同：请用 UpdateConsumerGroup 统一设置",
        ),
        (r"Only bodies of up to (\d+) bytes are taken apart here\.", "这里只解析不超过 {0} 字节的消息体。"),
        (r"The body is nested too deeply to be indented\.", "消息体嵌套过深，无法缩进显示。"),
        (
            r"damaged, shown as stored: the message says (\w+), but (.*)",
            "已损坏，按存储原样显示：消息标明 {0} 压缩（{1}）",
        ),
        (
            r"not inflated, shown as stored: the message says (\w+), but (.*)",
            "没有解压，按存储原样显示：消息标明 {0} 压缩（{1}）",
        ),
        (r"larger than (\d+) bytes", "超过 {0} 字节"),
        (r"cannot be read: (.*)", "无法读取：{0}"),
        (r"not a report: it has no `job`", "不是报告：没有 `job`"),
        (r"not a report: counts, findings or notes are missing", "不是报告：缺少 counts、findings 或 notes"),
        (r"not a report: (.*)", "不是报告：{0}"),
        (r"empty", "空"),
        (r"binary", "二进制"),
        (r"binary \((.*)\)", "二进制（{0}）"),
        (r"protobuf \(guessed from its bytes\)", "protobuf（按字节推测）"),
        (r"text, (.*) \(guessed\)", "文本，{0}（推测）"),
        (r"text, (.*)", "文本，{0}"),
        (r"JSON, (.*) \(guessed\)", "JSON，{0}（推测）"),
        (r"JSON, (.*)", "JSON，{0}"),
    )
)
