# Sums up what is bought (and "free" things, too).
class Cart
  attr_reader :items

  def initialize(items = [])
    @items = items
  end

  def total
    items.sum do |item|
      if item[:free]
        0
      else
        item.fetch(:price, 0)
      end
    end
  end

  def to_s
    names = items.map { |item| item[:name].gsub(')', '') }
    "#{names.join(', ')}: #{'%.2f' % total}"
  end
end

puts Cart.new([{ name: 'tea', price: 3 }, { name: "it's free", free: true }])
