#include <array>
#include <vector>

namespace shapes {

template <typename T, std::size_t N = 4>
class Row {
 public:
  explicit Row(T first) : values_{first} {}

  T sum() const {
    T all = 0;
    for (const auto& value : values_) {
      all += value;
    }
    return all;
  }

 private:
  std::array<T, N> values_;
};

struct Limits {
  int most = 10'000'000;
  int least = 0;
};

}  // namespace shapes

int main() {
  std::vector<shapes::Row<int>> rows{shapes::Row<int>(1), shapes::Row<int>(2)};
  auto longest = [&rows](int start) { return rows.size() + start; };
  return static_cast<int>(longest(0)) - rows.front().sum();
}
