import Foundation

struct Point: Equatable {
    var x: Double = 0.0
    var y: Double = 0.0

    func distance(to other: Point) -> Double {
        let (dx, dy) = (x - other.x, y - other.y)
        return (dx * dx + dy * dy).squareRoot()
    }
}

extension Point {
    static func + (left: Point, right: Point) -> Point {
        Point(x: left.x + right.x, y: left.y + right.y)
    }
}

let points = [Point(), Point(x: 1, y: 1)]
print(points.map { "\($0.x), \($0.y)" }.joined(separator: " | "))
