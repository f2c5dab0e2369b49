"""Generated sentences in English and Chinese: made from word lists and a seed.

The same seed and key give the same text in every process. Names of people and places are made of
syllables, so that a site has a few thousand different words, like a real one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOUNS = _words("""account air animal answer apple army art autumn bag ball bank basket bath
bay beach bean bear bell bench bird board boat body book border bottle box branch bread bridge
brother bucket building bus butter cabin camera camp canal candle car card carpet cart castle
cat cave chain chair chapter cheese child church circle city class clock cloth cloud coast
coat coffee coin colour company concert corner cottage cotton country courtyard cousin cow cup
curtain customer dance desk diary dinner doctor dog door dream dress driver drum dust ear edge
egg engine evening eye face factory family farm father feather fence ferry field film finger
fire fish flag flame floor flour flower food foot forest fork friend fruit garden gate glass
glove goat grain grass group guest hammer hand harbour hat hill history home honey horse
hospital hotel hour house ice idea island jacket jar journey judge juice kettle key kitchen
knife ladder lake lamp land language leaf leather lemon letter library light line lion list
lock lunch machine map market meadow meal meeting melody message metal milk mill mirror money
month morning mountain mouse mouth museum music nail needle neighbour nest net newspaper night
noise notebook number nurse oak ocean office oil onion orange orchard oven owner page paint
palace paper parcel park path pen pencil people pepper piano picture pilot pipe plan plant
plate platform pocket poem potato price printer quarter queen question radio railway rain
recipe record report river road roof room rope rose route salt sand school scissors sea season
seat secret shadow sheep shelf ship shirt shoe shop shoulder silver sister skill snow soap
soldier song soup spoon square stable stage stair stamp star station stone storm story stove
street student sugar summer sun table tailor tea teacher team theatre thread ticket tide
tomato tool tower town toy track train travel tree tunnel uncle valley van vegetable village
violin visitor voice wagon wall watch water weather wheel willow wind window winter wood wool
word work workshop writer yard year""")

VERBS = _words("""accepted admired answered asked baked bought brought built called carried
caught changed chose cleaned climbed closed collected copied counted crossed cut described
designed discovered divided drew drove explained filled finished fixed followed found gathered
gave guarded heard held helped hid improved invited joined kept knew left lent lifted liked
lit lost loved made measured mended met missed moved needed noticed offered opened ordered
owned packed paid painted passed planned planted played prepared printed protected pulled
pushed read received recorded remembered repaired replaced returned saw sent served shared
showed sold spent stopped stored studied taught tested took touched tried used visited wanted
warned washed watched welcomed won wrote""")

ADJECTIVES = _words("""absent active ancient angry bare bitter blue bold brave brief bright
broad broken brown busy calm careful cheap clean clear clever cold common curious dark dear
deep distant dry dull eager early easy empty fair faithful famous fast fine firm flat fresh
friendly full gentle glad golden good grand green grey happy hard heavy hidden high honest hot
huge kind large late lazy light little local lonely long loose loud low lucky modern narrow
neat new noble noisy northern old open pale patient plain pleasant polite poor proud pure
quick quiet rare ready red rich rough round royal safe sharp short shy silent simple slow
small smooth soft southern square steady steep strange strong sudden sweet tall thick thin
tidy tiny tired true warm weak western wet white whole wide wild wise wooden yellow young""")

ADVERBS = _words("""again almost already always badly carefully certainly early easily finally
gladly hardly hourly lately mostly nearly never often once openly partly perhaps quickly
quietly rarely recently seldom simply slowly soon still suddenly together twice usually well
yearly""")

PATTERNS = (
    "The {a} {n} {v} the {n} near the {n}.",
    "{p} {v} a {a} {n}, and the {n} {v} the {n} {d}.",
    "In {t}, the {n} of the {n} {v} {d}.",
    "When the {n} {v} the {a} {n}, {p} {v} the {n} too.",
    "Nobody in {t} {v} the {n} before the {a} {n} came.",
    "{p} and {p} {d} {v} the {n} that the {n} {v}.",
    "There are {i} {n}s between the {a} {n} and the {n}.",
    "Why the {n} {v} the {n} is a {a} question, said {p}.",
    "After {i} days the {a} {n} {v} every {n} in {t}.",
    "It was a {a}, {a} {n}, but {p} {v} it {d}.",
    "With a {n} and a {n}, one {v} the {n} more {d} than with a {n}.",
    "The {n} cost {i} coins; {p} {v} the {n} for {i}.",
    "Whoever {v} the {n} {d} will see the {a} {n} from the {n}.",
    "{d}, the {n}s from {t} {v} a {n}.",
    "If you look for the {n}, ask {p} at the {a} {n}.",
    "On the way to {t} we {v} a {n} with {i} {n}s.",
)

TITLES = (
    "The {a} {n} of {t}",
    "How {p} {v} a {n}",
    "{a} {n}s and {a} {n}s",
    "What the {n} {v} in {t}",
    "A {n} for the {a} {n}",
    "{p}, the {n} and the {n}",
)

SYLLABLES = _words("""ba be bi bo bra ca ce co da de di do dra fa fe fi ga ge gi gra ha he ho
ja jo ka ke ki la le li lo ma me mi mo na ne ni no pa pe pi po ra re ri ro sa se si so sta ta
te ti to tra va ve vi vo wa we wi ya za ze zo""")

CHINESE_NOUNS = _words("""城市 学校 老师 学生 图书馆 火车 车站 公园 河流 山谷 花园 市场
商店 老板 顾客 邻居 朋友 孩子 母亲 父亲 故事 历史 音乐 电影 照片 地图 天气 春天 夏天 秋天
冬天 早晨 晚上 窗户 大门 桌子 椅子 书架 杂志 报纸 信件 电话 手机 电脑 软件 网络 系统 数据
问题 办法 经验 计划 项目 公司 工厂 机器 工人 医生 医院 农民 田野 果园 苹果 茶叶 米饭 面条
蔬菜 厨房 味道 衣服 鞋子 帽子 雨伞 桥梁 道路 汽车 自行车 飞机 港口 船只 海岸 岛屿 森林
动物 小鸟 鱼塘 石头 木头 工具 钥匙 房间 楼梯 屋顶 院子 村庄 节日 礼物 歌曲 画家 作家 记者
教授 会议 报告 文章 句子 词典 语言 文化 艺术 博物馆 剧院 比赛 球队 教练 成绩 价格 质量
服务 消息 意见 机会 结果 原因 习惯 方向 距离 时间 颜色 声音 影子 灯光 月亮 星星""")

CHINESE_VERBS = _words("""看见 发现 修理 购买 出售 准备 完成 开始 结束 介绍 讨论 研究
学习 练习 收集 整理 打开 关闭 寻找 帮助 参加 组织 设计 建造 保护 改变 提高 喜欢 记得 忘记
离开 到达 经过 访问 拍摄 记录 描写 翻译 解释 证明 检查 比较 选择 使用 测试 安装 更新 分享
带来 送给 等待 接受 拒绝 支持 管理""")

CHINESE_ADJECTIVES = _words("""安静 美丽 古老 现代 简单 复杂 便宜 昂贵 新鲜 干净 宽阔
狭窄 明亮 温暖 寒冷 聪明 勇敢 认真 有趣 普通 特别 重要 著名 年轻 健康 快乐 忙碌 轻松 困难
方便 漂亮 巨大 细小 坚固 柔软 清楚 奇怪 真实 稳定 丰富""")

CHINESE_PATTERNS = (
    "{a}的{n}在{n}旁边，{p}每天都去{v}那里的{n}。",
    "{p}昨天{v}了一个{a}的{n}，大家都觉得很{a}。",
    "如果你想{v}{n}，最好先{v}{n}，然后再考虑{n}的问题。",
    "关于{n}的{n}，{p}和{p}有不同的看法。",
    "这里一共有{i}个{n}，其中{i}个是{a}的。",
    "我们在{n}里{v}了{n}，也{v}了{a}的{n}。",
    "因为{n}很{a}，所以{p}没有{v}{n}。",
    "从{n}到{n}大约要走{i}分钟，路上可以{v}{n}。",
    "虽然{n}不太{a}，但是{p}还是{v}了它。",
    "谁能告诉我怎样{v}这个{n}？我已经{v}了{i}次。",
    "{p}说，{a}的{n}比{a}的{n}更值得{v}。",
    "到了{n}的时候，{n}就会变得{a}起来。",
)

CHINESE_TITLES = ("{a}的{n}和{n}", "怎样{v}{n}？", "关于{n}的{n}", "{p}的{a}{n}")
CHINESE_SURNAMES = "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林罗郑梁谢宋唐许韩冯邓曹"
CHINESE_GIVEN = "伟芳娜敏静丽强磊军洋勇艳杰娟涛明超秀霞平刚桂英华玉萍红鹏辉玲建文云宁波"

_HOLE = re.compile(r"\{(\w)\}")


class Prose:
    """Texts of one site. ``seed`` may be anything with a stable ``repr``."""

    def __init__(self, seed: object, chinese: bool = False) -> None:
        self.seed = seed
        self.chinese = chinese
        chance = self.chance("names")
        self.people = [self._name(chance) for _ in range(600)]
        self.places = [self._place(chance) for _ in range(300)]
        self._patterns: Sequence[str] = CHINESE_PATTERNS if chinese else PATTERNS
        self._lists: dict[str, Sequence[str]] = {
            "n": CHINESE_NOUNS if chinese else NOUNS,
            "v": CHINESE_VERBS if chinese else VERBS,
            "a": CHINESE_ADJECTIVES if chinese else ADJECTIVES,
            "d": ADVERBS,
            "p": self.people,
            "t": self.places,
        }

    def chance(self, *key: object) -> random.Random:
        """Return random numbers that depend only on the seed and ``key``."""
        return random.Random(repr((self.seed, key)))

    def text(self, sentences: int, *key: object) -> str:
        """Return this many sentences; the same ``key`` gives the same ones."""
        return self._sentences(self.chance(*key), sentences)

    def paragraphs(self, least: int, most: int, *key: object) -> str:
        """Return HTML of paragraphs of three to seven sentences, ``least`` to ``most`` in all."""
        chance = self.chance(*key)
        left, parts = chance.randint(least, most), []
        while left > 0:
            count = min(left, chance.randint(3, 7))
            parts.append(f"<p>{self._sentences(chance, count)}</p>")
            left -= count
        return "\n".join(parts)

    def title(self, *key: object) -> str:
        """Return three to six words."""
        chance = self.chance("title", *key)
        pick = chance.choice
        lists = self._lists
        shapes: Sequence[str] = CHINESE_TITLES if self.chinese else TITLES
        made = _HOLE.sub(lambda hole: pick(lists[hole[1]]), pick(shapes))
        return made[:1].upper() + made[1:]

    def word(self, *key: object) -> str:
        """Return one noun."""
        return self.chance("word", *key).choice(self._lists["n"])

    def person(self, *key: object) -> str:
        """Return a full name."""
        return self.chance("person", *key).choice(self.people)

    def _sentences(self, chance: random.Random, count: int) -> str:
        pick, lists = chance.choice, self._lists

        def fill(hole: re.Match[str]) -> str:
            kind = hole[1]
            return str(chance.randint(2, 90)) if kind == "i" else pick(lists[kind])

        made = [_HOLE.sub(fill, pick(self._patterns)) for _ in range(count)]
        if self.chinese:
            return "".join(made)
        return " ".join(one[:1].upper() + one[1:] for one in made)

    def _name(self, chance: random.Random) -> str:
        if self.chinese:
            given = "".join(chance.choices(CHINESE_GIVEN, k=chance.randint(1, 2)))
            return chance.choice(CHINESE_SURNAMES) + given
        return f"{self._made(chance, 2, 3)} {self._made(chance, 2, 4)}"

    def _place(self, chance: random.Random) -> str:
        return self._made(chance, 2, 4)

    def _made(self, chance: random.Random, least: int, most: int) -> str:
        return "".join(chance.choices(SYLLABLES, k=chance.randint(least, most))).capitalize()


def slug(title: str) -> str:
    """Return a title in the form that it has in a path."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "topic"
