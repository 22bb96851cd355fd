"""Documents in several languages, as web pages and letters have them; all written for tests."""

GERMAN = [
    "<p>Die <b>Bäume</b> im Wald wurden gefällt, und der Förster hat neue Bäume gepflanzt.</p>",
    "Im Wald wachsen Eichen &amp; Buchen; der Förster pflegt die alten Eichen.",
    "Der Zug ist wieder zu spät, die Züge fahren am Bahnhof ohne Fahrplan ab.",
    "<div class='post'>Am Bahnhof warten wir auf den Zug. Mehr: https://example.org/zug?a=1</div>",
]
SPANISH = [
    "<p>Los <i>árboles</i> del bosque crecen despacio, y el jardinero plantó un árbol nuevo.</p>",
    "En el bosque hay robles &amp; pinos; el jardinero cuida los robles viejos.",
    "El tren llegó tarde otra vez, y los trenes salen de la estación sin horario.",
    "<br>Esperamos el tren en la estación; escriba a quejas@example.org por favor.",
]
CHINESE = [
    "<p>我们在城市公园里种了很多樱花树，公园很漂亮。</p>",
    "公园里的樱花春天开花，我们喜欢这个公园。",
    "火车又晚点了，火车站没有时刻表。",
    "我们在火车站等火车，请看 www.example.org/火车",
]
JAPANESE = [
    "<p>公園で桜を見ました。公園の桜はとても美しいです。</p>",
    "春になると、公園に桜が咲きます。",
    "電車がまた遅れています。駅には時刻表がありません。",
    "駅前で電車を待っています&nbsp;。お問い合わせは info@example.org まで。",
]
ENGLISH = [
    "<html><body><script>var tree = 1;</script><h1>Forest</h1>The trees of the forest grew, and "
    "foresters planted another tree.</body></html>",
    "Oaks &amp; beeches grow in the forest; the forester looked after old oaks.",
    "The train was late again, and trains leave the station without a timetable.",
    "We waited at the station for the train; see www.example.org or write to me@example.org.",
]
ALL = {
    "german": GERMAN,
    "spanish": SPANISH,
    "chinese": CHINESE,
    "japanese": JAPANESE,
    "english": ENGLISH,
}
