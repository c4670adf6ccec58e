using System.Collections.Generic;

namespace Shop
{
    /// <param name="path">The file (of a stock).</param>
    public class Stock
    {
        private readonly string path = @"C:\data\";

        public int Count { get; private set; }

        public IEnumerable<string> Names(IEnumerable<Item> items)
        {
            foreach (var item in items)
            {
                if (item.Name is { Length: > 0 } name)
                {
                    yield return $"{name} ({item.Count:D3})";
                }
            }
        }
    }
}
