# ruff: noqa: RUF001  (letters of every script are what this file is made of)
"""Texts for measuring a voice: a sentence in its language, or numerals if this file has none.

Every voice reads numerals in its own language, but a little lower than a sentence.
"""

from types import MappingProxyType

from speechframe.spec.locales import get_language

_SENTENCES = MappingProxyType(
    {
        "af": "Goeie môre, vandag is die weer mooi en ons gaan stap.",
        "am": "እንደምን አደሩ፣ ዛሬ አየሩ ጥሩ ነው።",
        "ar": "صباح الخير، الطقس جميل اليوم وسنذهب إلى الحديقة.",
        "az": "Sabahınız xeyir, bu gün hava çox gözəldir.",
        "be": "Добрай раніцы, сёння вельмі добрае надвор'е.",
        "bg": "Добро утро, днес времето е много хубаво.",
        "bn": "সুপ্রভাত, আজ আবহাওয়া খুব সুন্দর।",
        "bs": "Dobro jutro, danas je vrijeme veoma lijepo.",
        "ca": "Bon dia, avui fa molt bon temps i anem a passejar.",
        "cs": "Dobré ráno, dnes je venku krásné počasí.",
        "cy": "Bore da, mae'r tywydd yn braf iawn heddiw.",
        "da": "Godmorgen, i dag er vejret rigtig godt.",
        "de": "Guten Morgen, heute ist schönes Wetter. Wir gehen früh durch den grünen Park und "
        "essen am Abend zu Hause Brot und Käse.",
        "el": "Καλημέρα, σήμερα ο καιρός είναι πολύ ωραίος.",
        "en": "Please read the first page of this book aloud. My father bought five good apples, "
        "and she thought about the weather while the boat sailed home.",
        "es": "Buenos días, hoy hace muy buen tiempo. Vamos a pasear por el parque y luego "
        "comeremos pan con queso en la cocina de mi abuela.",
        "et": "Tere hommikust, täna on väga ilus ilm.",
        "eu": "Egun on, gaur eguraldi oso ona dago.",
        "fa": "صبح بخیر، امروز هوا خیلی خوب است.",
        "fi": "Hyvää huomenta, tänään on todella kaunis ilma.",
        "fr": "Bonjour, il fait très beau ce matin. Nous allons marcher dans le jardin, puis manger "
        "un peu de pain et de fromage chez ma sœur.",
        "ga": "Dia duit ar maidin, tá an aimsir go maith inniu.",
        "gd": "Madainn mhath, tha an t-sìde glè mhath an-diugh.",
        "gu": "સુપ્રભાત, આજે હવામાન ખૂબ સરસ છે.",
        "hi": "नमस्ते, आज मौसम बहुत अच्छा है। हम सब सुबह बगीचे में घूमेंगे और शाम को घर पर खाना खाएँगे।",
        "hr": "Dobro jutro, danas je vrijeme jako lijepo.",
        "hu": "Jó reggelt, ma nagyon szép idő van.",
        "hy": "Բարի լույս, այսօր եղանակը շատ լավն է։",
        "id": "Selamat pagi, hari ini cuaca sangat cerah.",
        "is": "Góðan daginn, í dag er veðrið mjög gott.",
        "it": "Buongiorno, oggi il tempo è molto bello. Andiamo a camminare nel parco e poi "
        "mangiamo pane e formaggio a casa di mia nonna.",
        "ja": "おはようございます。きょうは いい てんき ですね。",
        "ka": "დილა მშვიდობისა, დღეს ძალიან კარგი ამინდია.",
        "kk": "Қайырлы таң, бүгін ауа райы өте жақсы.",
        "kn": "ಶುಭೋದಯ, ಇಂದು ಹವಾಮಾನ ತುಂಬಾ ಚೆನ್ನಾಗಿದೆ.",
        "ko": "안녕하세요, 오늘은 날씨가 아주 좋습니다.",
        "ky": "Кутман таң, бүгүн аба ырайы абдан жакшы.",
        "lt": "Labas rytas, šiandien oras labai gražus.",
        "lv": "Labrīt, šodien ir ļoti jauks laiks.",
        "mi": "Mōrena, he pai te rangi i tēnei rā.",
        "mk": "Добро утро, денес времето е многу убаво.",
        "ml": "സുപ്രഭാതം, ഇന്ന് കാലാവസ്ഥ വളരെ നല്ലതാണ്.",
        "mr": "सुप्रभात, आज हवामान खूप छान आहे.",
        "ms": "Selamat pagi, cuaca hari ini sangat baik.",
        "mt": "Bonġu, illum it-temp huwa sabiħ ħafna.",
        "nb": "God morgen, i dag er været veldig fint.",
        "ne": "शुभ प्रभात, आज मौसम धेरै राम्रो छ।",
        "nl": "Goedemorgen, het is vandaag mooi weer. We gaan samen door het groene park en eten "
        "vanavond thuis brood met kaas.",
        "or": "ଶୁଭ ସକାଳ, ଆଜି ପାଗ ବହୁତ ଭଲ ଅଛି।",
        "pa": "ਸਤ ਸ੍ਰੀ ਅਕਾਲ, ਅੱਜ ਮੌਸਮ ਬਹੁਤ ਵਧੀਆ ਹੈ।",
        "pl": "Dzień dobry, dzisiaj jest bardzo ładna pogoda. Idziemy rano do parku, a wieczorem "
        "zjemy w domu chleb z serem.",
        "pt": "Bom dia, hoje o tempo está muito bonito. Vamos passear no parque e depois comemos "
        "pão com queijo na casa da minha avó.",
        "ro": "Bună dimineața, astăzi vremea este foarte frumoasă.",
        "ru": "Доброе утро, сегодня очень хорошая погода. Мы пойдём гулять в парк, а вечером будем "
        "дома есть хлеб с сыром.",
        "si": "සුබ උදෑසනක්, අද කාලගුණය ඉතා හොඳයි.",
        "sk": "Dobré ráno, dnes je vonku pekné počasie.",
        "sl": "Dobro jutro, danes je zelo lepo vreme.",
        "sq": "Mirëmëngjes, sot moti është shumë i mirë.",
        "sr": "Добро јутро, данас је време веома лепо.",
        "sv": "God morgon, i dag är vädret väldigt fint.",
        "sw": "Habari za asubuhi, leo hali ya hewa ni nzuri sana.",
        "ta": "காலை வணக்கம், இன்று வானிலை மிகவும் நன்றாக உள்ளது.",
        "te": "శుభోదయం, ఈ రోజు వాతావరణం చాలా బాగుంది.",
        "tr": "Günaydın, bugün hava çok güzel. Sabah parkta yürüyeceğiz, akşam da evde ekmek ve "
        "peynir yiyeceğiz.",
        "tt": "Хәерле иртә, бүген һава бик яхшы.",
        "uk": "Доброго ранку, сьогодні дуже гарна погода.",
        "ur": "صبح بخیر، آج موسم بہت اچھا ہے۔",
        "uz": "Xayrli tong, bugun havo juda yaxshi.",
        "vi": "Chào buổi sáng, hôm nay thời tiết rất đẹp.",
        "yue": "早晨，今日天氣好好，我哋去公園。",
        "zh": "早上好，今天天气很好。我们一起去公园走一走，晚上在家里吃饭，喝一点绿茶。",
    }
)
_NUMERALS = "1 2 3 4 5 6 7 8 9 10 20 100."


def get_reference_text(locale: str) -> str:
    """Return the text in a locale that a voice speaks to be measured.

    Examples
    --------
    >>> get_reference_text("es-MX").startswith("Buenos"), get_reference_text("eo")[:7]
    (True, '1 2 3 4')
    """
    return _SENTENCES.get(get_language(locale), _NUMERALS)
