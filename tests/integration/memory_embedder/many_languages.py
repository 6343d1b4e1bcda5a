# ruff: noqa: RUF001 -- letters of other scripts are meant
"""Sentences in many languages and scripts, and random texts of the characters of each script."""

from __future__ import annotations

import random

SENTENCES = {
    "English": "The backup of the photo album runs every night at three o'clock.",
    "German": "Der Schlüssel zum Gartenhäuschen hängt neben der Kellertür.",
    "French": "Le mot de passe du réseau des invités change chaque été.",
    "Spanish": "¿Dónde guardamos las facturas del año pasado?",
    "Polish": "Zażółć gęślą jaźń, a potem zrestartuj serwer na strychu.",
    "Czech": "Příští týden vyměníme žárovku na chodbě.",
    "Turkish": "Isıtıcıyı İstanbul'daki evde kışın açık bırakma.",
    "Vietnamese": "Bộ định tuyến nằm trên kệ sách trong phòng khách.",
    "Finnish": "Yöllä ajettava varmuuskopio epäonnistui kahdesti viime viikolla.",
    "Hungarian": "Az őszi szőlőtermés idén gyönyörű lett.",
    "Russian": "Резервная копия фотографий лежит на втором диске в подвале.",
    "Bulgarian": "Ключът за мазето виси до входната врата.",
    "Ukrainian": "Щовечора о десятій їжак приходить у сад.",
    "Serbian": "Љубичаста лампа у ходнику поново не ради.",
    "Greek": "Το κλειδί της αποθήκης είναι κάτω από τη γλάστρα.",
    "Armenian": "Պահուստային պատճենը երկրորդ սկավառակի վրա է։",
    "Georgian": "სარეზერვო ასლი მეორე დისკზე ინახება.",
    "Hebrew": "הגיבוי של התמונות רץ בכל לילה בשלוש.",
    "Arabic": "كلمة مرور الشبكة مكتوبة خلف جهاز التوجيه.",
    "Persian": "نسخهٔ پشتیبان هر شب ساعت سه گرفته می\u200cشود.",
    "Urdu": "چابی دروازے کے پاس والی میز پر رکھی ہے۔",
    "Hindi": "राउटर बैठक की अलमारी के ऊपर रखा है।",
    "Bengali": "প্রতি রাতে তিনটায় ছবির ব্যাকআপ নেওয়া হয়।",
    "Punjabi": "ਚਾਬੀ ਦਰਵਾਜ਼ੇ ਦੇ ਕੋਲ ਟੰਗੀ ਹੋਈ ਹੈ।",
    "Tamil": "காப்புப் பிரதி இரண்டாவது வட்டில் உள்ளது.",
    "Telugu": "తాళం చెవి తలుపు పక్కన వేలాడుతోంది.",
    "Malayalam": "താക്കോൽ വാതിലിനടുത്ത് തൂക്കിയിട്ടിരിക്കുന്നു.",
    "Sinhala": "ශ්\u200dරී ලංකාවේ නිවසේ යතුර මේසය උඩ ඇත.",
    "Thai": "กุญแจห้องใต้ดินแขวนอยู่ข้างประตู",
    "Lao": "ກະແຈຢູ່ເທິງໂຕະ",
    "Khmer": "កូនសោស្ថិតនៅលើតុ។",
    "Burmese": "သော့ကို စားပွဲပေါ်မှာ ထားတယ်။",
    "Amharic": "ቁልፉ በጠረጴዛው ላይ ነው።",
    "Korean": "공유기 비밀번호는 거실 책장 뒤에 적혀 있다.",
    "Japanese": "バックアップは毎晩三時に二台目のディスクへ書き込まれます。",
    "Chinese": "备份每天凌晨三点写入第二块硬盘。",
    "Chinese, traditional": "鑰匙掛在地下室門旁邊的掛鉤上。",
    "emoji": "deploy 🚀 done ✅ 👨‍👩‍👧 family, flags 🇧🇬🇯🇵",
    "wide and ligatures": "ＡＢＣ １２３ ﬁle ﬂag Ⅷ ½ ℃ ㎏ ①",
    "a mixture": "Meeting с Иваном о 日本語 docs: naïve café, 100 % bereit?",
}

MEMORIES = {
    "English": ("The backup runs every night at three.", "Anna is allergic to nuts."),
    "German": ("Die Sicherung läuft jede Nacht um drei.", "Anna verträgt keine Nüsse."),
    "Russian": ("Резервное копирование идёт каждую ночь в три.", "У Анны аллергия на орехи."),
    "Bulgarian": ("Архивирането тръгва всяка нощ в три.", "Анна е алергична към ядки."),
    "Japanese": ("バックアップは毎晩三時に実行される。", "アンナはナッツアレルギーだ。"),
    "Chinese": ("备份每天凌晨三点运行。", "安娜对坚果过敏。"),
}
QUESTIONS = {
    "English": ("When are the data saved?", "What must Anna not eat?"),
    "German": ("Wann werden die Daten gesichert?", "Was darf Anna nicht essen?"),
    "Russian": ("Когда сохраняются данные?", "Что Анне нельзя есть?"),
    "Bulgarian": ("Кога се записват данните?", "Какво не бива да яде Анна?"),
    "Japanese": ("データはいつ保存されますか。", "アンナが食べてはいけないものは何ですか。"),
    "Chinese": ("数据什么时候保存？", "安娜不能吃什么？"),
}

_BLOCKS = {
    "ASCII": (0x21, 0x7E),
    "Latin": (0xA1, 0x24F),
    "Greek": (0x370, 0x3FF),
    "Cyrillic": (0x400, 0x4FF),
    "Armenian": (0x531, 0x587),
    "Hebrew": (0x5D0, 0x5EA),
    "Arabic": (0x620, 0x64A),
    "Devanagari": (0x904, 0x939),
    "Bengali": (0x985, 0x9B9),
    "Tamil": (0xB85, 0xBB9),
    "Thai": (0xE01, 0xE30),
    "Georgian": (0x10D0, 0x10FF),
    "Ethiopic": (0x1200, 0x135A),
    "Khmer": (0x1780, 0x17B3),
    "punctuation and symbols": (0x2010, 0x22FF),
    "Hiragana": (0x3041, 0x3096),
    "Katakana": (0x30A1, 0x30FA),
    "Han": (0x4E00, 0x9FFF),
    "Hangul": (0xAC00, 0xD7A3),
    "wide": (0xFF01, 0xFF5E),
    "emoji": (0x1F300, 0x1F64F),
}
_FURTHER_BLOCKS = {
    "Arabic with marks": (0x620, 0x6FF),
    "Syriac": (0x700, 0x74A),
    "Thaana": (0x780, 0x7B1),
    "Devanagari with marks": (0x900, 0x97F),
    "Bengali with marks": (0x980, 0x9FB),
    "Gurmukhi": (0xA01, 0xA75),
    "Gujarati": (0xA81, 0xAF1),
    "Oriya": (0xB01, 0xB54),
    "Tamil with marks": (0xB82, 0xBFA),
    "Telugu": (0xC05, 0xC3B),
    "Kannada": (0xC85, 0xCF2),
    "Malayalam": (0xD02, 0xD3A),
    "Sinhala": (0xD82, 0xDF4),
    "Thai with marks": (0xE01, 0xE5B),
    "Lao": (0xE81, 0xEB9),
    "Tibetan": (0xF00, 0xFDA),
    "Burmese": (0x1000, 0x109F),
    "Cherokee": (0x13A0, 0x13F5),
    "Mongolian": (0x1820, 0x1877),
    "Khmer with marks": (0x1780, 0x17F9),
    "combining marks": (0x300, 0x36F),
    "controls": (0x0, 0x1F),
    "further controls": (0x7F, 0xA0),
    "marks of direction and spaces": (0x2000, 0x206F),
    "private use": (0xE000, 0xE0FF),
}


def mixed_texts(count: int) -> list[str]:
    """Texts of up to eight words of several scripts each, one of twenty with words of up to 130 characters."""
    chosen = random.Random(45)  # noqa: S311 -- no secret
    blocks = [*_BLOCKS.values(), *_FURTHER_BLOCKS.values()]

    def word(longest: int) -> str:
        block = chosen.choice(blocks)
        return "".join(chr(chosen.randint(*block)) for _ in range(chosen.randint(1, longest)))

    return [
        chosen.choice((" ", "", "-")).join(word(130 if number % 20 == 0 else 9) for _ in range(chosen.randint(1, 8)))
        for number in range(count)
    ]


def random_texts(*, of_each: int) -> list[str]:
    """Texts of up to eight words of up to nine characters, always the same ones."""
    chosen = random.Random(44)  # noqa: S311 -- no secret
    return [
        " ".join(
            "".join(chr(chosen.randint(*block)) for _ in range(chosen.randint(1, 9)))
            for _ in range(chosen.randint(1, 8))
        )
        for block in _BLOCKS.values()
        for _ in range(of_each)
    ]
