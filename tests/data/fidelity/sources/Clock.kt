package time

data class Clock(val hours: Int, val minutes: Int = 0) {
    val text: String
        get() = "%02d:%02d".format(hours, minutes)

    fun later(by: Int): Clock {
        val all = hours * 60 + minutes + by
        return when {
            by < 0 -> error("not back (by $by)")
            else -> Clock(all / 60 % 24, all % 60)
        }
    }
}

fun main() {
    val help = """Usage: clock "HH:MM" (24 hours)"""
    listOf(1, 2, 3).forEach { println(Clock(it).later(90).text) }
    println(help)
}
